"""The pure middle of fleet: types and decisions. No I/O, clock, environment or third-party import."""
