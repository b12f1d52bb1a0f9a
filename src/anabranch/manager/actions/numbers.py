"""Fields of actions that are whole numbers: those of Python or of NumPy, as snapshots have them.

What is no whole number is refused where the action is made, which is in the policy that got it wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

from anabranch.errors import ConfigError


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, of Python or NumPy; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def to_python_numbers(action: Any, *names: str, lists: tuple[str, ...] = ("groups",)) -> None:
    """Convert the fields of these names, and the lists of numbers in `lists`, to Python's numbers, in place."""
    for name in lists:
        listed = getattr(action, name)
        if not isinstance(listed, Iterable) or isinstance(listed, str):
            raise ConfigError(f"{type(action).__name__}: {name} must be a list of whole numbers, not {listed!r}")
        object.__setattr__(action, name, tuple(_whole(action, name, number) for number in listed))
    for name in names:
        object.__setattr__(action, name, _whole(action, name, getattr(action, name)))


def _whole(action: Any, name: str, value: Any) -> int:
    if not is_whole(value):
        raise ConfigError(f"{type(action).__name__}: {name} must be whole numbers, not {value!r}")
    return int(value)
