"""The state at a port: which rows it holds, whatever tree of operators is around it.

Two ports have equal identities if the same rows lie there, hashed on the same key: the same inputs with the same
selections, windows and rules of lateness, joined under the same conditions. So `(A B) C` and `A (B C)` have equal
identities at the leaves, and the state of (A B) has the same identity in every tree that has one.

Columns are no part of the identity. A state serves a port if the identities are equal and it has all columns that the
port needs.

An identity says which rows come in, not how long they are kept: that depends on what is on the other side of the
operator (`watermark`). Who takes over a state from another tree has to see that nothing it needs was dropped there.

`identity` makes these values. They have no aliases: a column is named by the rank of its input.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PortIdentity:
    """Which rows a port stores: `holds` describes their inputs in order of rank, `conditions` are those that joined
    rows met.

    `key` is what rows are hashed on, column by column: its text, and a digest of all terms that it is compared with,
    on which the type depends that it is hashed as.
    """

    holds: tuple[str, ...]
    conditions: tuple[str, ...]
    key: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """The identity as a short hash."""
        return digest([self.holds, self.conditions, self.key])


@dataclass(frozen=True, slots=True)
class PortState:
    """A port's identity, and the columns that are stored there."""

    identity: PortIdentity
    columns: frozenset[str]

    def serves(self, port: PortState) -> bool:
        """Whether this state holds the rows that another port needs, with all columns that it needs."""
        return self.identity == port.identity and self.columns >= port.columns

    def to_json(self) -> dict[str, Any]:
        """The form in which a plan's document stores it."""
        return {
            "digest": self.identity.digest,
            "holds": [json.loads(text) for text in self.identity.holds],
            "conditions": list(self.identity.conditions),
            "key": [list(column) for column in self.identity.key],
            "columns": sorted(self.columns),
        }


def digest(value: object) -> str:
    """A short hash of a value that has a JSON form."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:20]
