"""Start a run: check the queries, take the checkpoint, and go on from its last step."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anabranch
from anabranch.api.live.background import keep_going, watch
from anabranch.api.live.live_run import LiveRun
from anabranch.api.run import Run
from anabranch.api.session_settings import settings_of_a_run
from anabranch.api.targets import check_target, free_name
from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.queries import REMOVE, check_missing, missing_queries
from anabranch.checkpoint.settings import describe_engine
from anabranch.errors import ConfigError
from anabranch.observe.events import EventKind, log_start
from anabranch.runtime.sinks.output_folder import check_folder
from anabranch.state.store import local_path

if TYPE_CHECKING:
    from anabranch.api.engine import Engine
    from anabranch.api.writer import Writer

AS_SOON_AS_POSSIBLE = {"processingTime": "0 seconds"}


def start_run(engine: Engine, writers: Sequence[Writer], missing: str) -> Run:
    """Take the checkpoint, go on from its last step, and start the Spark query that drives the steps."""
    check_missing(missing)
    if not writers:
        raise ConfigError("there is no query to start")
    triggers = [writer._trigger for writer in writers if writer._trigger is not None]
    if any(trigger != triggers[0] for trigger in triggers):
        raise ConfigError("queries that start together have one trigger; give all of them the same")
    if len({local_path(writer._checkpoint) for writer in writers}) > 1:
        raise ConfigError("queries that start together have one checkpoint; give them the same, or none")
    named: dict[str, Writer] = {}
    for writer in writers:
        named[free_name(writer, named)] = writer
        writer._check_partitions()
        check_target(writer, engine.spark)
    settings = engine._settings
    for aside, whose in ((settings.quarantine, "quarantine"), (settings.late_rows, "late_rows")):
        if aside is not None:
            check_folder(aside, whose)
    checkpoint = Checkpoint(writers[0]._checkpoint)
    checkpoint.take(describe_engine(anabranch.__version__, settings.groups, settings_of_a_run(engine, writers)))
    run = LiveRun(engine, checkpoint, triggers[0] if triggers else AS_SOON_AS_POSSIBLE)
    try:
        removed = missing_queries(checkpoint, named) if missing == REMOVE else []
        run.launch(named, removed, checkpoint.last_step())
        for name in removed:
            run.events.add(
                EventKind.REMOVE, f"the query {name!r} is answered no longer, since it is not started", query=name
            )
        log_start(tuple(run.writers), run.runner.status.processors, checkpoint.path)
    except BaseException:
        checkpoint.release()
        raise
    for task, name in ((watch, "anabranch-run"), (keep_going, "anabranch-held")):
        run.threads.append(threading.Thread(target=task, args=(run,), name=name, daemon=True))
        run.threads[-1].start()
    return Run(run)
