"""What makes a lab node a QEMU guest: its first program (init), its set-up (setup.sh) and its boot (boot.py)."""
