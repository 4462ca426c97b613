"""Simulated nodes: real sshd over real OverlayFS roots, emulated vendor tools, faults on demand (Linux, root)."""
