"""Patterns by the names that run files and `Engine(placement=...)` use."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.errors import ConfigError, did_you_mean
from anabranch.manager.patterns.fewest_rounds import FewestRounds
from anabranch.manager.patterns.grouping import Grouping
from anabranch.manager.patterns.pattern import Pattern
from anabranch.manager.patterns.round_robin import RoundRobin
from anabranch.manager.patterns.spread import Spread

SPREAD = "spread"
PATTERNS: dict[str, Pattern] = {
    SPREAD: Spread(),
    "round-robin": RoundRobin(),
    "grouping": Grouping(),
    "fewest-rounds": FewestRounds(),
}


def pattern_of(placement: str | Pattern) -> Pattern:
    """The pattern of a name, or what a user gave instead, checked."""
    if isinstance(placement, str):
        if placement not in PATTERNS:
            raise ConfigError(f"there is no placement {placement!r}; {did_you_mean(placement, PATTERNS)}")
        return PATTERNS[placement]
    if isinstance(placement, Mapping):
        raise ConfigError(f"placement={placement!r} reads like clusters of processors: write ab.Tier({placement!r})")
    if isinstance(placement, type) and callable(getattr(placement, "place", None)):
        raise ConfigError(f"placement must be an object: write {placement.__name__}() instead of {placement.__name__}")
    if isinstance(placement, type) or not callable(getattr(placement, "place", None)):
        raise ConfigError(f"placement must be a pattern such as ab.Grouping(), or its name, not {placement!r}")
    return placement
