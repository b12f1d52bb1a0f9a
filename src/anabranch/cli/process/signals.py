"""Ctrl-C, a polite kill and a closed terminal, all as one exception in the main thread.

`Interrupted` is raised once, wherever the main thread happens to be. After it the command only cleans up, with time
limits, so later signals are ignored: an impatient second Ctrl-C must not leave a JVM behind. The signal is also
remembered, because a library in between may turn the exception into one of its own.

Handlers are Python functions and never SIG_IGN, which child processes would inherit.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_received: list[int] = []


class Interrupted(BaseException):
    """A signal has told the command to end."""


def received() -> int | None:
    """The signal that came first, if one has come."""
    return _received[0] if _received else None


@contextmanager
def raised_as_exceptions() -> Iterator[None]:
    """Inside, the first ending signal raises `Interrupted`."""
    _received.clear()
    with kept():
        _handle_with(_raise_once)
        yield


@contextmanager
def ignored() -> Iterator[None]:
    """Inside, nothing is interrupted: for the short work of cleaning up."""
    with kept():
        _handle_with(_ignore)
        yield


@contextmanager
def kept() -> Iterator[None]:
    """Put the present handlers back afterwards: PySpark installs one of its own when a session starts."""
    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handle_with(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in ENDING:
        signal.signal(number, handler)


def _raise_once(number: int, frame: FrameType | None) -> None:
    if _received:
        return
    _received.append(number)
    raise Interrupted(signal.Signals(number).name)


def _ignore(number: int, frame: FrameType | None) -> None:
    return
