"""Diffused partition groups, as progress, `explain` and `inspect` show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.observe.numbers import format_count, numbered


@dataclass(frozen=True, slots=True)
class DiffusedGroups:
    """Groups of an operator that are diffused alike: each row of the `master` goes to one of the hosts, by their
    weights, and every row of the `others` to all.

    The master is the same since a step, which was committed at that time in seconds since 1970. Who diffused them for
    the `reason` expected so many rows a batch to be received more than once (`expected_copies`); None if nobody did.

    An operator that ran fused with others is apart from them for that, in a round of its own. It is to join them again.
    The round takes so many seconds of every batch; None if that is not known.
    """

    operator: str
    groups: tuple[int, ...]
    master: str
    others: tuple[str, ...]
    hosts: tuple[int, ...]
    weights: tuple[float, ...]
    step: int
    time: float
    reason: str
    expected_copies: float | None = None
    apart_from: tuple[str, ...] = ()
    round_seconds: float | None = None

    @property
    def sentence(self) -> str:
        """All of it for people."""
        return (
            f"{self.operator}: {numbered(self.groups)} diffused over processors {', '.join(map(str, self.hosts))}; "
            f"since step {self.step} each row of {self.master} goes to one of them, and those of "
            f"{', '.join(self.others)} to all; {self.reason}{self._apart}"
        )

    @property
    def _apart(self) -> str:
        if not self.apart_from:
            return ""
        cost = "" if self.round_seconds is None else f", about {self.round_seconds:.2f} s a batch"
        return f"; for that it runs in a round of its own, apart from the {', the '.join(self.apart_from)}{cost}"

    def as_dict(self) -> dict[str, Any]:
        """As a part of `lastProgress`."""
        return {
            "operator": self.operator,
            "groups": list(self.groups),
            "master": self.master,
            "replicated": list(self.others),
            "processors": list(self.hosts),
            "weights": list(self.weights),
            "sinceStep": self.step,
            "sinceTime": self.time,
            "expectedCopiedRows": self.expected_copies,
            "reason": self.reason,
            "apartFrom": list(self.apart_from),
            "roundSeconds": self.round_seconds,
        }


def overhead(diffused: tuple[DiffusedGroups, ...], copied: int) -> str:
    """The rows of a step that were received more than once, and how many were expected."""
    expected = [entry.expected_copies for entry in diffused]
    sure = sum(copies for copies in expected if copies is not None)
    compared = f", {format_count(round(sure))} expected" if None not in expected else ""
    return f"{format_count(copied)} rows copied{compared}"
