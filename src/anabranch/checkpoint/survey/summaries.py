"""Summaries of a checkpoint's state: per input, per sorted runs of a port, per operator with spilled state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.checkpoint.step import Step
from anabranch.manager.memory.debt import owed_results, waiting_rows
from anabranch.manager.tiers.clusters import Clusters
from anabranch.observe.inspection import InputSummary, OperatorSummary, SpilledSummary, SpineSummary
from anabranch.state.generation import spilled_groups
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest
from anabranch.state.runs.spine import Spine
from anabranch.state.store import Json


def input_summaries(plan: Json, step: Step | None) -> tuple[InputSummary, ...]:
    """Sum up each input of a plan, with its counts up to a step."""

    def total(name: str, number: int) -> int:
        return int(step.totals[name][number]) if step else 0

    return tuple(
        InputSummary(
            alias=source["label"],
            stream=source["stream"],
            window=source["window (us)"],
            lateness=source["lateness (us)"],
            newest=step.newest[number] if step else None,
            received=total("received", number),
            late=total("late", number),
            rejected=total("rejected", number),
        )
        for number, source in enumerate(plan.get("sources", []))
    )


def spine_summary(processor: int, part: str, spine: Spine) -> SpineSummary:
    """Sum up the sorted runs of one port on a processor."""
    files = {piece.file.name for piece in spine.slices()}
    return SpineSummary(processor, part, spine.rows, spine.bytes, len(spine.runs), len(spine.merges), len(files))


def spilled_summaries(processor: int, manifest: Manifest, plan: Json, count: int) -> Iterator[SpilledSummary]:
    """Sum up the spilled state of each operator on a processor; `count` is the number of partition groups."""
    for identity, state in zip(plan["operators"], manifest.operators, strict=True):
        groups = spilled_groups(state.generations)
        if groups is None:
            continue
        holds = [port["holds"] for port in plan["ports"] if port["identity"].rpartition("/")[0] == identity]
        windows = [
            s["window (us)"] for s in plan["sources"] if s["identity"].rpartition("/")[0].startswith(f"{identity}/")
        ]
        groups_rows = identity in plan["groupings"]
        owing = groups if groups_rows else state.owing() or GroupSet(count, 0)
        # Of groupings, joins with windows and joins of joined rows there is only a bound.
        unbounded = not groups_rows and len(windows) == len(holds) and not any(w is not None for w in windows)
        owed = waiting_rows(state, count, owing) if groups_rows else owed_results(state, count, len(holds))
        yield SpilledSummary(
            processor,
            ", ".join(holds),
            len(state.generations),
            sum(generation.rows for generation in state.generations),
            sum(generation.bytes for generation in state.generations),
            len(groups),
            len(owing),
            owed if owing else 0,
            not unbounded,
        )


def operator_summaries(
    plan: Json, step: Step, manifests: Sequence[Manifest], clusters: Clusters | None
) -> Iterator[OperatorSummary]:
    """Sum up where each operator of a plan is."""
    owners = [port["identity"].rpartition("/")[0] for port in plan["ports"]]
    names = zip(plan["operators"], operator_names(plan), step.routings, strict=True)
    for n, (identity, (name, holds), routing) in enumerate(names):
        ports = [number for number, owner in enumerate(owners) if owner == identity]
        spines = [manifest.spines[port] for manifest in manifests for port in ports]
        hosts = {host for group in range(len(routing.placement)) for host in routing.hosts(group)}
        generations = [one for manifest in manifests for one in manifest.operators[n].generations]
        yield OperatorSummary(
            name=f"groups of {', '.join(holds)}" if identity in plan["groupings"] else name,
            processors=tuple(sorted(hosts)),
            cluster=None if clusters is None else clusters.of_processors(hosts),
            rows=sum(spine.rows for spine in spines),
            bytes=sum(spine.bytes for spine in spines),
            spilled_bytes=sum(generation.bytes for generation in generations),
        )


def operator_names(plan: Json) -> list[tuple[str, list[str]]]:
    """The names of the operators of a plan, each with the names of its ports, as people know them."""
    names = []
    for identity in plan["operators"]:
        holds = [port["holds"] for port in plan["ports"] if port["identity"].rpartition("/")[0] == identity]
        names.append((f"join of {', '.join(holds)}", holds))
    return names
