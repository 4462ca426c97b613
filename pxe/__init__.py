"""PXE installs of bare nodes: decisions, rendering and power drivers. Not built yet; the place is kept."""
