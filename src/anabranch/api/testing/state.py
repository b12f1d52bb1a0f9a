"""The present state of a run, group by group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.runtime.driver.step.context import StepContext
from anabranch.state.manifest import Manifest
from anabranch.state.partition import partition_info
from anabranch.state.runs.run import FileCuts
from anabranch.state.runs.slice import Slice
from anabranch.state.spill import rows_by_group


def state_by_group(context: StepContext) -> list[dict[str, Any]]:
    """A dict for each processor, operator and partition group that has state: rows and bytes, active and spilled."""
    return [entry for p, manifest in enumerate(context.manifests) for entry in _of_processor(context, p, manifest)]


def _of_processor(context: StepContext, processor: int, manifest: Manifest) -> Iterable[dict[str, Any]]:
    count, cuts = context.shape.groups, FileCuts(context.run.checkpoint.state, context.shape.groups)
    for shape in context.shape.operators:
        state = manifest.operators[shape.number]
        listed: dict[str, Iterable[Slice]] = {
            "activeRows": (piece for port in shape.ports for piece in manifest.spines[port].slices()),
            "spilledRows": (piece for old in state.generations for port in old.ports for piece in port),
            "heldRows": (piece for port in state.held for piece in port),
        }
        rows = {name: rows_by_group(slices, count, cuts) for name, slices in listed.items()}
        totals = partition_info(state, count)
        for group in range(count):
            if any(by_group[group] for by_group in rows.values()):
                counted = {name: int(by_group[group]) for name, by_group in rows.items()}
                numbers = {name: n for name, n in totals.get(group, {}).items() if name != "rows"}
                yield {"processor": processor, "operator": shape.name, "group": group, **counted, **numbers}
