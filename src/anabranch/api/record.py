"""The record of a run: its settings, streams, queries and sinks, from which `stopped_run` delivers owed results without
the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from anabranch.runtime.sinks.formats import FILE_FORMATS
from anabranch.runtime.spark.query_settings import settings_in_force
from anabranch.state.store import local_path

if TYPE_CHECKING:
    from anabranch.api.engine import Engine
    from anabranch.api.writer import Writer


def recording(engine: Engine, writers: Mapping[str, Writer]) -> dict[str, Any]:
    """The record of a run, for `stopped_run`."""
    settings = engine._settings
    clusters = None if settings.clusters is None else {name: list(p) for name, p in settings.clusters.named.items()}
    queries: dict[str, Any] = {}
    for name, writer in writers.items():
        chosen = writer._sink
        # Other sinks are gone with the program, and their options may be secrets, such as passwords.
        recorded = chosen.function is None and chosen.format in FILE_FORMATS
        sink = asdict(replace(chosen, function=None, options=_absolute(chosen.options))) if recorded else None
        queries[name] = {**writer._query._arguments, "sink": sink}
    return {
        "session settings": settings_in_force(engine.spark),
        "processors": settings.processors,
        "groups": settings.groups,
        "memory": settings.memory,
        "placement": engine.placement if isinstance(engine.placement, str) else repr(engine.placement),
        "clusters": clusters,
        "initial_placement": engine.initial_placement
        if isinstance(engine.initial_placement, str)
        else list(engine.initial_placement),
        "quarantine": None if settings.quarantine is None else str(settings.quarantine),
        "late_rows": None if settings.late_rows is None else str(settings.late_rows),
        "streams": {
            name: {
                "schema": frame.schema.jsonValue(),
                "time": engine.streams[name].time,
                "lateness": engine.streams[name].lateness,
            }
            for name, frame in engine._sources.registered.items()
        },
        "operators": [name for name, stream in engine.streams.items() if stream.application is not None],
        "queries": queries,
    }


def _absolute(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a file format, with an absolute path: a later program may be started in another folder."""
    return {name: str(local_path(value)) if name == "path" else value for name, value in options.items()}
