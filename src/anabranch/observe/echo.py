"""A terminal that does not show typed keys while a panel is drawn on it.

A key that the terminal echoes, such as the ^C of an interruption, moves the cursor unnoticed, and the next picture
leaves a line of the last one on the screen.
"""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

_LOCAL_MODES = 3  # their place in what termios tells


@contextmanager
def no_echo() -> Iterator[None]:
    """Inside, keys are not echoed. Does nothing if keys do not come from a terminal of this process."""
    terminal = _terminal()
    if terminal is None:
        yield
        return
    before = termios.tcgetattr(terminal)
    silent = list(before)
    silent[_LOCAL_MODES] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


def _terminal() -> int | None:
    """The file that keys are read from, if it is a terminal and ours. A process in the background would be stopped for
    changing it."""
    try:
        terminal = sys.stdin.fileno()
        ours = os.isatty(terminal) and os.tcgetpgrp(terminal) == os.getpgrp()
    except (AttributeError, OSError, ValueError):
        return None
    return terminal if ours else None
