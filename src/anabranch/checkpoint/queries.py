"""The queries that a checkpoint answers: which ones, since when, and removing one of them without its program.

To remove a query is to put a plan in force that does not list it. The last step still lists its state. The program that
starts the run again compiles the remaining queries, and state that none of them needs is not carried over.
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

# The choices for queries that a checkpoint answers and that are not started.
REFUSE = "refuse"
REMOVE = "remove"

# How a description marks times, and where it has windows by alias.
MICROSECONDS = " (us)"
WINDOWS = "query, windows"


def answered_queries(checkpoint: Checkpoint, last: Step) -> Json:
    """The queries that the last step was made with and that have not been removed since, by name."""
    in_force = checkpoint.plan(checkpoint.plan_number)["queries"]
    return {
        name: entry
        for name, entry in checkpoint.plan(last.plan)["queries"].items()
        if name in in_force and in_force[name]["since"] == entry["since"]
    }


def check_missing(missing: str) -> None:
    """Refuse a value of `missing` that is none of the choices."""
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
    """Remove a query from a stopped checkpoint; return the names of those that it still answers.

    Refused if it was written by an engine of another `version`.
    """
    checkpoint.take({**checkpoint.identity(), "engine version": version})
    try:
        last = checkpoint.last_step()
        if last is None:
            raise ConfigError(f"{checkpoint.path} has not answered anything yet; start it with the queries you want")
        plan = checkpoint.plan(checkpoint.plan_number)
        left = {other: entry for other, entry in plan["queries"].items() if other != name}
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
    requests: Sequence[Request],
    described: Mapping[str, Json],
    removed: Collection[str] = (),
    changed: str | None = None,
) -> list[Request]:
    """Give each query the plan number it began under, and its order of joins; queries of the checkpoint keep theirs.

    A request with a track of its own keeps its own order. A query that is `changed` takes the place of the one with its
    name.

    Refused if any other query has changed, or if one is missing that is not `removed`: its state would be lost. A query
    counts if the last step was made with it, and it has not been removed since.
    """
    last = checkpoint.last_step()
    if last is None:
        return [replace(request, since=1) for request in requests]
    before, version = answered_queries(checkpoint, last), checkpoint.next_plan
    names = {request.name: request.name for request in requests}
    if len(before) == 1 and len(requests) == 1 and not removed:
        names = {requests[0].name: next(iter(before))}  # the name of a single query makes no difference
    unchanged = {name: described[name] for name in names if name != changed}
    _check_same(checkpoint, unchanged, {name: before[former] for name, former in names.items() if former in before})
    _check_none_missing(checkpoint, sorted(before.keys() - set(names.values()) - set(removed)))
    # A query that was added, and has had no batch since, is still the same query.
    in_force = checkpoint.plan(checkpoint.plan_number)["queries"]
    added = {name: entry["since"] for name, entry in in_force.items() if entry["query"] == described.get(name, {})}
    return [
        replace(
            _as_arranged(request, before.get(name)),
            name=name,
            since=before[name]["since"] if name in before else added.get(name, version),
            lacking=request.lacking if request.name == changed else before.get(name, {}).get("lacking", 0),
        )
        for request in requests
        for name in [names[request.name]]
    ]


def former_queries(checkpoint: Checkpoint, changed: str | None = None, text: str = "") -> dict[str, Json]:
    """By query that was changed while it ran: its present text, and the descriptions that it had `before`.

    One query may be `changed` just now, to a text.
    """
    last = checkpoint.last_step()
    answered = {} if last is None else answered_queries(checkpoint, last)
    former = {name: entry["changed"] for name, entry in answered.items() if "changed" in entry}
    if changed is not None:
        before = former.get(changed, {"before": []})["before"]
        former[changed] = {"text": text, "before": [*before, answered[changed]["query"]]}
    return former


def _check_same(checkpoint: Checkpoint, described: Mapping[str, Json], before: Mapping[str, Json]) -> None:
    """Refuse queries that are not described as they were `before`; both are by name."""
    shared = {name: before[name] for name in described if name in before}
    found = [
        difference
        for name, entry in shared.items()
        for difference in differences({"query": entry["query"]}, {"query": described[name]})
    ]
    # What inputs say of their windows is there a second time, by alias.
    mismatches = [_mismatch(*difference) for difference in found if not difference[0].startswith(WINDOWS)]
    mismatches = mismatches or [_mismatch(*difference) for difference in found]
    for name, entry in shared.items():
        _check_not_replaced(name, described[name], entry)
    if mismatches:
        raise ResumeMismatchError(
            f"checkpoint {checkpoint.path} cannot be resumed: {'; '.join(mismatches)}. Run the query it was made with, "
            "or give the changed one a new checkpoint directory (or delete this one, with all that it has seen). To go "
            "on with the state, run the old query and replace it by run.change(name, query)"
        )


def _mismatch(place: str, was: Any, now: Any) -> str:
    """A difference in words; times in seconds."""
    if MICROSECONDS in place:
        was, now = (f"{value / 1e6:g} s" if isinstance(value, int) else short(value) for value in (was, now))
        return f"{place.replace(MICROSECONDS, '')} was {was} and is now {now}"
    return f"{place} was {short(was)} and is now {short(now)}"


def _check_not_replaced(name: str, described: Json, before: Json) -> None:
    """Refuse a query that is described as it was before it was changed while it ran."""
    if "changed" in before and before["query"] != described and described in before["changed"]["before"]:
        raise ResumeMismatchError(
            f"the query {name!r} was changed while it ran (run.change), and this is what it was before. Start it as it "
            f"is now: {before['changed']['text']}"
        )


def _check_none_missing(checkpoint: Checkpoint, missing: Sequence[str]) -> None:
    """Refuse to go on without queries that the checkpoint answers."""
    if missing:
        path = checkpoint.path
        raise ResumeMismatchError(
            f"checkpoint {path} cannot be resumed: it also answers the query {missing[0]!r}, which is not started. "
            f"Start it, too, or let it go: start(..., missing='remove'), or: anabranch remove {path} {missing[0]!r}"
        )


def _as_arranged(request: Request, before: Json | None) -> Request:
    """A request with the order of joins and the track that the checkpoint has for its query."""
    if before is None or request.track:
        return request
    query, joins = request.query, before["joins"]
    if joins is not None and as_shape(joins) != shape_of(query):
        query = rearranged(query, as_shape(joins))
    return replace(request, query=query, track=before["track"])


def as_shape(joins: Any) -> Shape:
    """The shape of joins from its stored form."""
    return joins if isinstance(joins, int) else tuple(map(as_shape, joins))


def short(value: Any) -> str:
    """A value as text for a message, cut to 200 characters."""
    text = repr(value) if value is not None else "absent"
    return text if len(text) <= 200 else text[:197] + "..."
