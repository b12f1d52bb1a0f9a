"""The step in force: the last committed step, and the distribution of state after it.

A run goes on from the last step of the run before it. Groups that have moved stay where they are, and a run that was
rescaled keeps its processors, as long as the program asks for the same initial placement. If it asks for another one,
state is listed anew: every owner gets a manifest that lists the parts of existing runs whose hashes lie in its groups,
and a step without a batch puts these manifests in force. Nothing is copied.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.checkpoint.carry_over import carry_over
from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.folder.retention import RETAINED_STEPS
from anabranch.checkpoint.step import InitialPlacement, Step
from anabranch.manager.connection_manager import ConnectionManager
from anabranch.manager.distribution import Distribution
from anabranch.manager.query_plan_manager import check_valid, fits
from anabranch.observe.events import EventKind, EventLog
from anabranch.plan.allocation import Allocation
from anabranch.plan.placement import converted
from anabranch.plan.routing import owned_by
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest
from anabranch.state.report import Report, report_body
from anabranch.state.store import encode_document, write_file


class InForce:
    """The last step of a checkpoint, None before the first, and the distribution after it.

    `initial` is the placement that the program asks for. A user may be `awaiting` the results of all groups that were
    spilled up to a step. Operators are in `families`, `apart` and `parted` as in a step.
    """

    def __init__(
        self, checkpoint: Checkpoint, initial: InitialPlacement, nothing: Manifest, allocation: Allocation
    ) -> None:
        """No step is in force until `resume`; `nothing` is the manifest of a processor without state."""
        self._checkpoint = checkpoint
        self._retained: dict[int, tuple[Manifest, ...]] = {}
        self.initial = initial
        self._allocate(allocation)
        self._planned = allocation.placements
        self.last: Step | None = None
        self.awaiting: int | None = None
        self._resumed: int | None = None
        self.distribution = Distribution((nothing,) * initial.processors, owned_by(initial.placements))

    def resume(self, connections: ConnectionManager, events: EventLog, *, continues: bool) -> None:
        """Go on from the last step of the checkpoint, which this driver must have taken.

        If state has to be listed anew for that, a step is committed. Unless the plan `continues` with operators where
        they are, all is listed as the program wants it.
        """
        self._checkpoint.claim()
        checkpoint, last = self._checkpoint, self._checkpoint.last_step()
        if last is None:
            return
        for number in checkpoint.steps()[-RETAINED_STEPS:]:
            step = checkpoint.read_step(number)
            self._retained[number] = tuple(manifest for _, manifest in checkpoint.reports_of(step))
        distribution = Distribution(self._retained[last.number], last.routings, last.moving, last.diffusions)
        if last.plan != checkpoint.plan_number:
            before, after = checkpoint.plan(last.plan), checkpoint.plan(checkpoint.plan_number)
            new = tuple(
                placement if continues else converted(placement, self.initial.processors, last.processors)
                for placement in self._planned
            )
            last, manifests = carry_over(
                last, distribution.manifests, before, after, self.initial, connections.plan.families, new
            )
            distribution = self._gathered(connections, Distribution(manifests, last.routings), events)
            last = replace(last, routings=distribution.routings, diffusions=())
        self.last, self.distribution = last, check_valid(connections.plan, distribution)
        self._resumed = last.batch_id
        if not continues:
            processors = self.initial.processors
            self.list_anew(connections.rescale(distribution, processors, self.initial.placements))
            listed_on = "the same, placed otherwise" if last.processors == processors else processors
            events.add(EventKind.RESCALE, f"state of {last.processors} processors is now listed on {listed_on}")
        elif not fits(connections.plan, distribution):
            homes = distribution.placements
            alike = tuple(homes[family] for family in connections.plan.families)
            self.list_anew(connections.rescale(distribution, last.processors, alike))
            events.add(EventKind.RESCALE, "operators that run fused are now placed alike")
        self._checkpoint.remove_unreferenced(self._retained)

    def _gathered(self, connections: ConnectionManager, distribution: Distribution, events: EventLog) -> Distribution:
        """Gather all diffused groups, since operators may run fused with others under another plan."""
        count = sum(len(routing.diffused) for routing in distribution.routings)
        if count:
            groups = f"{count} partition group{'s' if count > 1 else ''}"
            events.add(EventKind.GATHER, f"{groups} gathered, since the queries of the run change", groups=count)
        return connections.gathered(distribution)

    def go_on_from(self, before: InForce) -> None:
        """Take the place of the step in force under another plan of the same run: the next batch stays the same."""
        self._resumed = before._resumed

    @property
    def may_repeat(self) -> bool:
        """Whether the next batch may have reached a sink before a crash: then it must give the same rows again."""
        last = self.last
        return last is not None and last.batch_id == self._resumed and self._checkpoint.has_planned(last.batch_id)

    def list_anew(self, distribution: Distribution, hold: dict[int, GroupSet] | None = None) -> None:
        """Commit a step without a batch that puts another distribution in force."""
        last = self.last
        assert last is not None, "before the first step there is nothing to list"
        self._checkpoint.check_epoch()
        number = self._checkpoint.next_number
        directory = self._checkpoint.prepare_step(number)
        names = [f"{number:010d}-{p:04d}-listed.json" for p in range(distribution.processors)]
        for p, (name, manifest) in enumerate(zip(names, distribution.manifests, strict=True)):
            report = Report.empty(p, len(last.newest), 0, 0)
            report.count_state(manifest)
            write_file(directory / name, encode_document(report_body(report, manifest)))
        step = self._checkpoint.next_step(
            last,
            processors=distribution.processors,
            routings=distribution.routings,
            reports=tuple(names),
            plan=self._checkpoint.plan_number,
            hold=last.hold if hold is None else hold,
            moving=distribution.moving,
            diffusions=distribution.diffusions,
            initial=self.initial,
            families=self.families,
            apart=self.apart,
            parted=self.parted,
        )
        self._checkpoint.commit(step)
        self.advance(step, distribution)

    @property
    def allocation(self) -> Allocation:
        """Where operators are, and which of them run fused."""
        return Allocation(self.distribution.placements, self.families, frozenset(self.apart), self.parted)

    def _allocate(self, allocation: Allocation) -> None:
        self.families, self.apart = tuple(allocation.families or ()), tuple(sorted(allocation.apart))
        self.parted = allocation.parted

    def reallocate(self, distribution: Distribution, allocation: Allocation) -> None:
        """Put a distribution in force under which other operators run fused. Before the first step there is nothing to
        commit."""
        before = self.allocation
        self._allocate(allocation)
        try:
            if self.last is None:
                self.distribution = distribution
            else:
                self.list_anew(distribution)
        except BaseException:
            self._allocate(before)
            raise

    def advance(self, step: Step, distribution: Distribution) -> None:
        """Put a step in force that was committed, with the distribution after it."""
        self.last, self.distribution = step, distribution
        self._retained[step.number] = distribution.manifests
        for old in sorted(self._retained)[:-RETAINED_STEPS]:
            del self._retained[old]
        self._checkpoint.remove_unreferenced(self._retained)
