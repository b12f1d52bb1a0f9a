"""When operators that run fused are set apart, so that groups of them can be diffused: never to and fro.

To set an operator apart costs every batch a round, and to let it join the others again costs another plan. So an
operator that was set apart stays so for `FIRST_REST` batches, and twice as long each time it is set apart again, up to
`LAST_REST`: as long as that the last of its groups are not gathered, and if somebody else does that, it is not set
apart again. So in n batches it is set apart at most 1 + log2(1 + n / FIRST_REST) + n / LAST_REST times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.manager.actions import DiffuseGroups, GatherGroups
from anabranch.manager.snapshot import Snapshot

FIRST_REST, LAST_REST = 16, 256


@dataclass(frozen=True, slots=True)
class Parted:
    """Since which batch an operator is apart, or was last, and for how many it stays as it is."""

    since: int
    rest: int


@dataclass(slots=True)
class Partings:
    """Follows which operators are apart, by name, whoever has set them apart."""

    _known: dict[str, Parted] = field(default_factory=dict)
    _now: frozenset[str] = frozenset()

    def notice(self, snapshot: Snapshot, batch: int) -> None:
        """Note which operators have been set apart since the last step."""
        before, self._now = self._now, frozenset(snapshot.plan.operators[n].name for n in snapshot.parted)
        for name in self._now - before:
            known = self._known.get(name)
            self._known[name] = Parted(batch, FIRST_REST if known is None else min(2 * known.rest, LAST_REST))

    def has_rested(self, name: str, batch: int) -> bool:
        """Whether an operator may be set apart, or may join the others again."""
        known = self._known.get(name)
        return known is None or batch - known.since >= known.rest

    def without_rejoining(
        self, actions: Sequence[DiffuseGroups | GatherGroups], snapshot: Snapshot, batch: int
    ) -> list[DiffuseGroups | GatherGroups]:
        """The actions without those that would gather the last groups of an operator that has to stay apart."""
        staying = set()
        for n in snapshot.parted:
            diffused = {group for group, _ in snapshot.routings[n].diffused}
            gathered = {
                group
                for action in actions
                if action.operator == n and isinstance(action, GatherGroups)
                for group in action.groups
            }
            entering = any(action.operator == n and isinstance(action, DiffuseGroups) for action in actions)
            rested = self.has_rested(snapshot.plan.operators[n].name, batch)
            if diffused and diffused <= gathered and not entering and not rested:
                staying.add(n)
        return [action for action in actions if not (isinstance(action, GatherGroups) and action.operator in staying)]
