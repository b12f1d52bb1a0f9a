"""Add queries to a run that goes on, and remove them: `Run.add` and `Run.remove`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from anabranch.api.changes.checks import check_fits, check_may_restart
from anabranch.api.changes.host import check_quiet, stopped
from anabranch.api.targets import check_writer, free_name
from anabranch.errors import ConfigError, did_you_mean
from anabranch.observe.events import EventKind
from anabranch.runtime.driver.open_run import propose, switch

if TYPE_CHECKING:
    from anabranch.api.live.live_run import LiveRun
    from anabranch.api.writer import Writer


def add_query(run: LiveRun, writer: Writer) -> None:
    """Answer one more query from the next batch on."""
    check_writer(writer, "add")
    with run.lock:
        check_quiet(run, "added")
        name = free_name(writer, run.writers)
        check_fits(run.engine, run.checkpoint, run.trigger, writer)
        _answer(run, {**run.writers, name: writer}, "added")
        run.events.add(EventKind.ADD, f"the query {name!r} is answered from now on", query=name)


def remove_query(run: LiveRun, name: str) -> None:
    """Stop answering a query, from the next batch on."""
    with run.lock:
        check_quiet(run, "removed")
        if name not in run.writers:
            raise ConfigError(f"there is no query {name!r} in this run; {did_you_mean(name, list(run.writers))}")
        if len(run.writers) == 1:
            raise ConfigError(f"{name!r} is the only query of this run; stop() the run instead")
        _answer(run, {other: writer for other, writer in run.writers.items() if other != name}, "removed")
        run.parts.orders.forget(name)
        run.events.add(EventKind.REMOVE, f"the query {name!r} is answered no longer", query=name)


def _answer(run: LiveRun, writers: dict[str, Writer], what: str) -> None:
    """Answer these queries from the next batch on.

    If Spark's query packs already all that they need, it goes on as it is; otherwise it is started anew. Errors say
    that no query can be `what`.
    """
    removed = run.writers.keys() - writers.keys()
    prepare = partial(run.engine._prepare_again, running=run.plan)
    opened = None
    while opened is None:
        proposal = propose(run.checkpoint, run.questions(writers), prepare, removed)
        if proposal.plan.packed is not run.plan.packed:
            check_may_restart(run.engine, run.checkpoint, run.plan, what)
            with stopped(run):
                run.launch(writers, removed)
            return
        try:
            opened = switch(run.opened, proposal)
        except ConfigError:
            if run.runner.failure is not None:
                raise run.runner.failure from None
            raise
    run.take_over(opened, writers)
    run.ends = run.ends_by_itself and (run.ends or run.runner.status.answers_at_the_end)
