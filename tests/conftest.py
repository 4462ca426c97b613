"""What holds for all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A job in the background of a script ignores Ctrl-C, and so would all that the tests start and interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
