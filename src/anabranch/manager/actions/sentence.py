"""How an action is told: what an event is made of, before it counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from anabranch.observe.events import EventKind


class Sentence(NamedTuple):
    """What an event tells: its kind, the text for people, and details by name."""

    kind: EventKind
    text: str
    details: Mapping[str, Any]
