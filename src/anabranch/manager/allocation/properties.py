"""Open properties of processors, operators and the plan (paper 5, tables 5.1 to 5.3): what users know, and cost models
may ask for.

The engine reads none of them. They are in every snapshot, so a new cost model or pattern needs no new plumbing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.errors import ConfigError

Values = Mapping[str, float | str]


@dataclass(frozen=True, slots=True)
class Properties:
    """Values by name: of processors, by number; of operators, by name in events and progress; of the plan."""

    processors: Mapping[int, Values] = field(default_factory=dict)
    operators: Mapping[str, Values] = field(default_factory=dict)
    plan: Values = field(default_factory=dict)


NO_PROPERTIES = Properties()


def check_properties(given: object, processors: int) -> Properties:
    """The properties that a user gives: dicts for "processors", "operators" and "plan"; refused if they are no such."""
    if given is None:
        return NO_PROPERTIES
    expected = (
        'properties are such as {"processors": {0: {"speed": 2.0}}, "operators": {"join of A, B": {"weight": 3}}, '
        '"plan": {"owner": "me"}}'
    )
    parts = ("processors", "operators", "plan")
    if not isinstance(given, Mapping) or not given.keys() <= set(parts):
        raise ConfigError(f"{expected}, not {given!r}")
    by_processor, by_operator, plan = (given.get(part, {}) for part in parts)
    if not all(isinstance(part, Mapping) for part in (by_processor, by_operator, plan)):
        raise ConfigError(f"{expected}, not {given!r}")
    for processor in by_processor:
        if not isinstance(processor, int) or isinstance(processor, bool) or not 0 <= processor < processors:
            raise ConfigError(f"properties are of processors from 0 to {processors - 1}, not of {processor!r}")
    for values in (*by_processor.values(), *by_operator.values(), plan):
        if not isinstance(values, Mapping) or not all(
            isinstance(value, float | int | str) for value in values.values()
        ):
            raise ConfigError(f"a property is a number or a text; {expected}, not {values!r}")
    return Properties(by_processor, by_operator, plan)
