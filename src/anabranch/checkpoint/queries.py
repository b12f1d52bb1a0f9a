"""Queries that a checkpoint answers: which ones, since when, and letting one of them go without its program.

To remove a query is to put a plan in force that does not list it. Its state is still listed by the last step; whoever
starts the run again compiles what is left, and state that no other query needs is not carried over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.folder.identity import differences
from anabranch.checkpoint.journal import open_log
from anabranch.checkpoint.step import Step
from anabranch.errors import ConfigError, ResumeMismatchError, did_you_mean
from anabranch.observe.events import EventKind
from anabranch.plan.arrangement import Shape
from anabranch.plan.join_order import rearranged, shape_of
from anabranch.plan.network import Request
from anabranch.state.store import Json

# What becomes of queries that a checkpoint answers and that are not started.
REFUSE = "refuse"
REMOVE = "remove"


def answered_queries(checkpoint: Checkpoint, last: Step) -> Json:
    """The queries that the last step was made with and that have not been removed since, by name."""
    in_force = checkpoint.plan(checkpoint.plan_number)["queries"]
    return {
        name: entry
        for name, entry in checkpoint.plan(last.plan)["queries"].items()
        if name in in_force and in_force[name]["since"] == entry["since"]
    }


def check_missing(missing: str) -> None:
    """Refuse a value of `missing` that there is not."""
    if missing not in (REFUSE, REMOVE):
        hint = did_you_mean(str(missing), [REFUSE, REMOVE])
        raise ConfigError(f"missing is what becomes of queries that are not started, not {missing!r}; {hint}")


def missing_queries(checkpoint: Checkpoint, started: Collection[str]) -> list[str]:
    """The queries that a checkpoint answers and that are not started; refused if that is all of them."""
    last = checkpoint.last_step()
    answered = answered_queries(checkpoint, last) if last is not None else {}
    if len(answered) == len(started) == 1:
        return []  # what a single query is called makes no difference
    gone = sorted(answered.keys() - set(started))
    if answered and len(gone) == len(answered):
        raise ResumeMismatchError(
            f"checkpoint {checkpoint.path} cannot be resumed: none of the queries that it answers is started "
            f"({', '.join(map(repr, gone))}), so nothing of it would be left. Start one of them under its name "
            "(queryName), or choose a new checkpoint directory"
        )
    return gone


def remove_query(checkpoint: Checkpoint, name: str, version: str) -> list[str]:
    """Let a stopped checkpoint answer a query no longer; returns the names of those that it still answers.

    Refused if it was written by an engine of another `version`.
    """
    checkpoint.take({**checkpoint.identity(), "engine version": version})
    try:
        last = checkpoint.last_step()
        if last is None:
            raise ConfigError(f"{checkpoint.path} has not answered anything yet; start it with the queries you want")
        plan = checkpoint.plan(checkpoint.plan_number)
        left = {known: entry for known, entry in plan["queries"].items() if known != name}
        if len(left) == len(plan["queries"]):
            hint = did_you_mean(name, list(plan["queries"]))
            raise ConfigError(f"{checkpoint.path} answers no query {name!r}; {hint}")
        if not left:
            raise ConfigError(
                f"{name!r} is the only query that {checkpoint.path} answers; remove the whole directory instead"
            )
        checkpoint.claim()
        record = checkpoint.records.run()
        record["queries"].pop(name, None)
        checkpoint.records.write_run(record)
        checkpoint.adopt({**plan, "queries": left})
        open_log(checkpoint).add(EventKind.REMOVE, f"the query {name!r} is answered no longer", query=name)
        return list(left)
    finally:
        checkpoint.release()


def requests_after(
    checkpoint: Checkpoint,
    asked: Sequence[Request],
    described: Mapping[str, Json],
    removed: Collection[str] = (),
    changed: str | None = None,
) -> list[Request]:
    """Give each query the plan number it began under, and its order of joins; known queries keep theirs.

    A query that is asked for on a track of its own has the order that it is asked for with. One that is `changed` takes
    the place of the one that has its name.

    Refused if any other query has changed, or if one is missing that is not `removed`: its state would be lost. A query
    counts if the last step was made with it, and it has not been removed since.
    """
    last = checkpoint.last_step()
    if last is None:
        return [replace(request, since=1) for request in asked]
    before = answered_queries(checkpoint, last)
    where, version = checkpoint.path, checkpoint.next_plan
    names = {request.name: request.name for request in asked}
    if len(before) == 1 and len(asked) == 1 and not removed:
        names = {asked[0].name: next(iter(before))}  # what a single query is called makes no difference
    found = [
        f"{what} was {short(was)} and is now {short(now)}"
        for request in asked
        if names[request.name] in before and request.name != changed
        for what, was, now in differences(
            {"query": before[names[request.name]]["query"]}, {"query": described[request.name]}
        )
    ]
    for request in asked:
        _check_not_replaced(request.name, described[request.name], before.get(names[request.name]), changed)
    if found:
        raise ResumeMismatchError(
            f"checkpoint {where} cannot be resumed: {'; '.join(found)}. Run the query it was made with, or give the "
            "changed one a new checkpoint directory"
        )
    missing = sorted(before.keys() - set(names.values()) - set(removed))
    if missing:
        raise ResumeMismatchError(
            f"checkpoint {where} cannot be resumed: it also answers the query {missing[0]!r}, which is not started. "
            f"Start it, too, or let it go: start(..., missing='remove'), or: anabranch remove {where} {missing[0]!r}"
        )
    # A query that was added, and that no batch has been made for since, is the same one still.
    in_force = checkpoint.plan(checkpoint.plan_number)["queries"]
    added = {name: entry["since"] for name, entry in in_force.items() if entry["query"] == described.get(name, {})}
    return [
        replace(
            _as_arranged(request, before.get(name)),
            name=name,
            since=before[name]["since"] if name in before else added.get(name, version),
            lacking=request.lacking if request.name == changed else before.get(name, {}).get("lacking", 0),
        )
        for request in asked
        for name in [names[request.name]]
    ]


def former_queries(checkpoint: Checkpoint, changed: str | None = None, text: str = "") -> dict[str, Json]:
    """Of each query that was changed while it ran: the text that it has now, and what it was `before`, as described.

    One may be `changed` now, to a text.
    """
    last = checkpoint.last_step()
    answered = {} if last is None else answered_queries(checkpoint, last)
    former = {name: entry["changed"] for name, entry in answered.items() if "changed" in entry}
    if changed is not None:
        before = former.get(changed, {"before": []})["before"]
        former[changed] = {"text": text, "before": [*before, answered[changed]["query"]]}
    return former


def _check_not_replaced(name: str, described: Json, before: Json | None, changed: str | None) -> None:
    """Refuse a query as it was before it was changed while it ran."""
    if before is None or name == changed or "changed" not in before or before["query"] == described:
        return
    if described in before["changed"]["before"]:
        raise ResumeMismatchError(
            f"the query {name!r} was changed while it ran (run.change), and this is what it was before. Start it as it "
            f"is now: {before['changed']['text']}"
        )


def _as_arranged(request: Request, before: Json | None) -> Request:
    """A query with its joins in the order in which the checkpoint has them, on that track."""
    if before is None or request.track:
        return request
    query, joins = request.query, before["joins"]
    if joins is not None and as_shape(joins) != shape_of(query):
        query = rearranged(query, as_shape(joins))
    return replace(request, query=query, track=before["track"])


def as_shape(joins: Any) -> Shape:
    """The shape of joins, as stored."""
    return joins if isinstance(joins, int) else tuple(map(as_shape, joins))


def short(value: Any) -> str:
    """A value for a message."""
    text = repr(value) if value is not None else "absent"
    return text if len(text) <= 200 else text[:197] + "..."
