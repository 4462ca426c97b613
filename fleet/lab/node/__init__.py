"""What runs inside a lab node. Stand-alone: standard library only, no import of fleet."""
