"""Migrate a query to another order of its joins.

This is no edit of manifests between two batches: another plan takes the place of this one, with Spark's analysis of it,
and that may take many steps. So what is applied here is the wish; who carries migrations out finds it after the step
(`api/changes/policy_migrations`), and may refuse it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.plan.orders.join_orders import Wish

if TYPE_CHECKING:
    from anabranch.manager.actions.change import Change, Context


@dataclass(frozen=True, slots=True)
class MigrateQuery:
    """Go on with the joins of a query as `joins` says, which is what `Run.migrate` takes."""

    query: str
    joins: str
    reason: str
    strategy: str = "auto"
    wish: Wish = "latency"

    def problem(self, change: Change, context: Context) -> str | None:
        """Why this makes no sense; that is found out when it is carried out."""
        return None

    def must_wait(self, change: Change, taken: set[int]) -> bool:
        """Whether another migration was decided on in the same step."""
        return bool(change.migrations)

    def apply(self, change: Change, context: Context) -> None:
        """Note that it is to be carried out."""
        change.migrations.append(self)
