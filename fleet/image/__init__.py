"""Not built yet; the place is kept (see docs/adr)."""
