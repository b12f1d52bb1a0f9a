"""The content of an event about an action, kept until the action has taken effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from anabranch.observe.events import EventKind


class Sentence(NamedTuple):
    """The content of an event: its kind, the text for people, and details by name."""

    kind: EventKind
    text: str
    details: Mapping[str, Any]
