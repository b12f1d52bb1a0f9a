"""The relocation protocol (paper 1, section 5.1; paper 2, section 5.2) as a state machine, without any I/O.

Paper 1 has eight messages, paper 2 calls what happens quiesce, extract, transfer, install and restart:

    1 compute partitions to move   the manager asks the sender for an amount
    2 partitions to move           the sender answers with groups
    3 deactivate partitions        the manager tells the splits and the sender
    4 deactivated                  rows are held back; all that was in flight is done        quiesce
    5 send partitions              the manager tells the sender
    6 receive partitions           the sender ships                                          extract, transfer
    7 received                     the receiver has installed them                           install
    8 reactivate partitions        the splits drain what they held back to the new place     restart

On Spark the driver speaks for all of them. Between two batches nothing is in flight, so a batch boundary is the
quiescent point, and on shared storage a transfer is an edit of manifests. So all eight usually happen at one boundary
and count with one commit. A move with a `pace` stays deactivated while the receiver reads ahead, so many bytes per
step: then steps are committed in between, and rows of the groups that move are held back by the sender.

At any time a group has one owner: the sender up to message 6, the receiver from there on. What is committed is either
a move that is deactivated, or none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.manager.actions.relocate_groups import RelocateGroups

# Rows that arrive for groups on their way have to wait, so a pace that would take more steps than this is raised.
MOST_TURNS = 32


class Message(IntEnum):
    """The messages of the protocol, by their number in paper 1."""

    COMPUTE = 1
    CHOSEN = 2
    DEACTIVATE = 3
    DEACTIVATED = 4
    SEND = 5
    RECEIVE = 6
    RECEIVED = 7
    REACTIVATE = 8

    @property
    def text(self) -> str:
        """The message for people."""
        return TEXTS[self]


TEXTS = {
    Message.COMPUTE: "compute partitions to move",
    Message.CHOSEN: "partitions to move",
    Message.DEACTIVATE: "deactivate partitions",
    Message.DEACTIVATED: "deactivated",
    Message.SEND: "send partitions",
    Message.RECEIVE: "receive partitions",
    Message.RECEIVED: "received",
    Message.REACTIVATE: "reactivate partitions",
}


@dataclass(frozen=True, slots=True)
class Relocation:
    """A move under way: what is moved, and when each message was sent. `left` steps are still to be waited for."""

    move: RelocateGroups
    sent: tuple[tuple[Message, float], ...] = ()
    left: int = 0

    @classmethod
    def begin(cls, move: RelocateGroups, asked_at: float, chosen_at: float) -> Relocation:
        """A move whose groups are known: a policy looked for them from `asked_at` to `chosen_at`, by the driver's
        clock."""
        relocation = cls(move)
        return replace(relocation, left=relocation.turns).say(Message.COMPUTE, asked_at).say(Message.CHOSEN, chosen_at)

    @property
    def turns(self) -> int:
        """How many steps the receiver reads ahead in; none if it does not, and never more than `MOST_TURNS`."""
        return 0 if self.move.pace is None else min(-(-self.move.bytes // max(self.move.pace, 1)), MOST_TURNS)

    @property
    def last(self) -> Message | None:
        """The message that was sent last."""
        return self.sent[-1][0] if self.sent else None

    @property
    def owner(self) -> int:
        """The one processor that the groups belong to."""
        return self.move.receiver if (self.last or 0) >= Message.RECEIVE else self.move.sender

    @property
    def holds_back(self) -> bool:
        """Whether rows that arrive for the groups have to wait."""
        return Message.DEACTIVATED <= (self.last or 0) < Message.REACTIVATE

    @property
    def is_done(self) -> bool:
        """Whether the groups go on at the new place."""
        return self.last is Message.REACTIVATE

    def say(self, message: Message, time: float) -> Relocation:
        """Send a message of the protocol. If it is not the next one, an error shows all messages so far."""
        if message != (self.last or 0) + 1:
            story = ", ".join(f"{said.text} at {at:.3f}" for said, at in self.sent) or "nothing so far"
            raise AnabranchError(f"a relocation cannot {message.text!r} now; what happened: {story}. {self.move}")
        return replace(self, sent=(*self.sent, (message, time)))

    def deactivate(self, time: float) -> Relocation:
        """Send messages 3 and 4 at a batch boundary: nothing is in flight, so rows of the groups have stopped at
        once."""
        return self.say(Message.DEACTIVATE, time).say(Message.DEACTIVATED, time)

    def wait(self) -> Relocation:
        """Count a step in which rows were held back and the receiver has read ahead."""
        return replace(self, left=max(self.left - 1, 0))

    def to_json(self) -> dict[str, Any]:
        """As stored in a step."""
        move = {name: getattr(self.move, name) for name in self.move.__slots__}
        return {"move": move, "sent": [[int(message), time] for message, time in self.sent], "left": self.left}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Relocation:
        """The inverse of `to_json`."""
        move = RelocateGroups(**{**body["move"], "groups": tuple(body["move"]["groups"])})
        return cls(move, tuple((Message(number), time) for number, time in body["sent"]), body["left"])
