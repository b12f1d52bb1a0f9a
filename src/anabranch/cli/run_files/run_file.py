"""Run files: a query in a TOML or YAML file for `anabranch run`, checked before Spark is started.

    query = "SELECT ... FROM orders [RANGE 2 MINUTES] AS o, payments [RANGE 2 MINUTES] AS p WHERE ..."
    checkpoint = "checkpoint"        # the folder that holds the state; running again with it goes on from there
    processors = 2                   # optional, as are: groups, memory, quarantine, late_rows,
                                     # joins, emit, placement, initial_placement

    [streams.orders]                 # one table per stream
    format = "parquet"               # any format that Spark can stream from, or "anabranch-synthetic"
    path = "orders"                  # where it is, for formats that have a place
    schema = "order_id BIGINT, ts TIMESTAMP"
    time = "ts"                      # the event time; without it the stream can only be unbounded
    lateness = "10 seconds"
    options = { maxFilesPerTrigger = 1 }

    [sink]
    format = "parquet"               # the default; any format that Spark can write
    path = "results"
    partition_by = []
    options = {}

    [trigger]
    available_now = true             # the default: process what is there and end
    # processing_time = "5 seconds"  # instead: go on until stopped

    [policies.lazy-disk]             # a table per policy, with its arguments; by default spill, if memory is set;
                                     # instead of tables, policies = "adaptive" above: all that there is, arbitrated
    span = "10 seconds"

    [spark]                          # settings of Spark
    "spark.driver.memory" = "4g"

Relative paths are meant from the file's own folder. Unknown keys are refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlparse

import yaml

from anabranch.api.synthetic import FORMAT as SYNTHETIC
from anabranch.api.synthetic import stream_of
from anabranch.cli.run_files.tables import Table
from anabranch.errors import ConfigError
from anabranch.language import parse_duration
from anabranch.language.grouping import EACH_TUPLE
from anabranch.manager.patterns.named import SPREAD, pattern_of
from anabranch.manager.policies import ADAPTIVE, POLICIES
from anabranch.manager.policies.adaptive import Adaptive
from anabranch.manager.policies.spill import Spill
from anabranch.manager.snapshot import Policy
from anabranch.plan.placement import even_placement
from anabranch.plan.shape_text import AUTO
from anabranch.runtime.sinks.formats import FILE_FORMATS
from anabranch.state.groups import DEFAULT_GROUPS, check_groups
from anabranch.state.store import local_path

_KEYS = """
    query checkpoint streams sink trigger processors groups memory quarantine late_rows joins emit spark policies
    placement initial_placement
""".split()

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class StreamSource:
    """The source of a stream."""

    name: str
    format: str
    path: str | None
    schema: str | None
    time: str | None
    lateness: str | None
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """The target of the results."""

    format: str
    path: str | None
    partition_by: tuple[str, ...]
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class RunFile:
    """A run file as a value. `processing_time` is None for a run that ends when the input is processed."""

    source: Path
    query: str
    checkpoint: str
    streams: tuple[StreamSource, ...]
    sink: SinkTarget
    processing_time: str | None
    processors: int | None
    groups: int
    memory: str | int | None
    quarantine: str | None
    late_rows: str | None
    joins: str
    emit: str
    spark: dict[str, str]
    policies: tuple[Policy, ...] | None = None
    placement: str = SPREAD
    initial_placement: tuple[float, ...] | None = None


def load(path: Path) -> RunFile:
    """Read and check a run file."""
    top = Table(path.name, "", _parse(path)).only(*_KEYS)
    folder = path.absolute().parent
    query = top.required("query", "the CQL text of the query")
    checkpoint = top.required("checkpoint", "the folder that holds the state, such as checkpoint = 'checkpoint'")
    streams = top.table("streams")
    if streams is None:
        raise top.error("streams", "is missing: a table for each stream, such as [streams.orders]")
    processing_time = _trigger(top.table("trigger"))
    sources = tuple(_stream(stream, table, folder) for stream, table in streams.tables())
    for stream, source in zip(streams.tables(), sources, strict=True):
        if source.format == SYNTHETIC:
            _check_synthetic(stream[1], source, ends=processing_time is None)
    groups = top.number("groups")
    groups = DEFAULT_GROUPS if groups is None else top.check("groups", groups, check_groups)
    processors = top.number("processors")
    if processors is not None:
        top.check("processors", processors, lambda count: even_placement(groups, count))
    return RunFile(
        source=path,
        query=query,
        checkpoint=_checked_path(top, "checkpoint", checkpoint, folder),
        streams=sources,
        sink=_sink(top.table("sink"), top, folder),
        processing_time=processing_time,
        processors=processors,
        groups=groups,
        memory=top.size("memory"),
        quarantine=_optional_path(top, "quarantine", folder),
        late_rows=_optional_path(top, "late_rows", folder),
        joins=top.text("joins") or AUTO,
        emit=top.text("emit") or EACH_TUPLE,
        spark=_spark(top),
        policies=_policies(top),
        placement=top.check("placement", top.text("placement") or SPREAD, pattern_of),
        initial_placement=top.numbers("initial_placement"),
    )


def _policies(top: Table) -> tuple[Policy, ...] | None:
    """The policies of the file; None if it names none."""
    if top.is_text("policies"):
        return _named(top)
    policies = top.table("policies")
    if policies is None:
        return None
    made = []
    for name, table in policies.only(*POLICIES).tables():
        arguments = table.values(*(entry.name for entry in fields(POLICIES[name]) if entry.init))
        if "spill" in arguments:
            inner = table.table("spill")
            assert inner is not None, "what has a value is there"
            arguments["spill"] = _policy(inner, Spill, inner.values(*(entry.name for entry in fields(Spill))))
        made.append(_policy(table, POLICIES[name], arguments))
    return tuple(made)


def _named(top: Table) -> tuple[Policy, ...]:
    """All policies together, by their name."""
    name = top.text("policies")
    if name != ADAPTIVE:
        raise top.error("policies", f"must be {ADAPTIVE!r} or tables such as [policies.spill], not {name!r}")
    return (Adaptive(),)


def _policy(table: Table, kind: Callable[..., Made], arguments: dict[str, Any]) -> Made:
    try:
        return kind(**arguments)
    except ConfigError as error:
        raise table.error(None, f"is wrong: {error}") from None


def _parse(path: Path) -> Any:
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; name the TOML or YAML file that describes the query")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; name the TOML or YAML file that describes the query") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    try:
        if path.suffix.lower() in (".yaml", ".yml"):
            return yaml.safe_load(text)
        if path.suffix.lower() == ".toml":
            return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name} is not valid TOML: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path.name} is not valid YAML: {' '.join(str(error).split())}") from None
    raise ConfigError(f"{path.name}: its name must end in .toml, .yaml or .yml, so that it is known how to read it")


def _stream(name: str, table: Table, folder: Path) -> StreamSource:
    table.only("format", "path", "schema", "time", "lateness", "options")
    lateness, time = table.text("lateness"), table.text("time")
    if lateness is not None:
        table.check("lateness", lateness, parse_duration)
        if time is None:
            raise table.error("lateness", "needs a time column; name it with time = '...'")
    return StreamSource(
        name=name,
        format=table.required("format", "how Spark reads the stream, such as 'parquet' or 'kafka'"),
        path=_optional_path(table, "path", folder, anywhere=True),
        schema=table.text("schema"),
        time=time,
        lateness=lateness,
        options=_options(table),
    )


def _check_synthetic(table: Table, source: StreamSource, *, ends: bool) -> None:
    """Refuse settings that the synthetic source cannot serve; `ends` says whether the run ends when its input is
    processed."""
    for key in ("path", "schema"):
        if table.has(key):
            raise table.error(key, f"is of no use: {SYNTHETIC} makes its rows itself, with key, number and ts")
    table.check("options", source.options, stream_of)
    if ends and ("rows" not in source.options or source.options.get("paced") != "false"):
        raise table.error(
            "options",
            "must say how many rows there are, and that all are there at once: { rows = 100000, paced = false }. Rows "
            "that come at a pace have not come yet when a run that processes what is there begins; for these set "
            "trigger.processing_time",
        )


def _sink(table: Table | None, top: Table, folder: Path) -> SinkTarget:
    if table is None:
        raise top.error("sink", "is missing: where the results go, such as [sink] with path = 'results'")
    table.only("format", "path", "partition_by", "options")
    target = SinkTarget(
        format=table.text("format") or "parquet",
        path=_optional_path(table, "path", folder, anywhere=True),
        partition_by=table.texts("partition_by"),
        options=_options(table),
    )
    if target.path is None and target.format.lower() in FILE_FORMATS:
        raise table.error("path", "is missing: the folder that the files go to, such as path = 'results'")
    if target.format == "memory":
        raise table.error("format", "'memory' would be gone when the command ends; use parquet, or console to look")
    return target


def _options(table: Table) -> dict[str, str]:
    options = table.options("options")
    for misplaced in ("path", "checkpointLocation"):
        if any(key.lower() == misplaced.lower() for key in options):
            better = "path beside the options" if misplaced == "path" else "checkpoint at the top of the file"
            raise table.error(f"options.{misplaced}", f"has a key of its own: write it as {better}")
    return options


def _trigger(table: Table | None) -> str | None:
    if table is None:
        return None
    table.only("available_now", "processing_time")
    available_now, pace = table.flag("available_now"), table.text("processing_time")
    if pace is not None:
        if available_now:
            raise table.error("available_now", "and processing_time exclude each other; leave one out")
        return table.check("processing_time", pace, parse_duration)
    if available_now is False:
        raise table.error("available_now", "is false, so it needs a pace: processing_time = '5 seconds'")
    return None


def _spark(top: Table) -> dict[str, str]:
    settings = top.options("spark")
    for key in settings:
        if not key.startswith("spark."):
            raise top.error(f"spark.{key}", f"is no setting of Spark; they begin with 'spark.', as in 'spark.{key}'")
    return settings


def _optional_path(table: Table, key: str, folder: Path, *, anywhere: bool = False) -> str | None:
    location = table.text(key)
    if location is None:
        return None
    return _from(folder, location) if anywhere else _checked_path(table, key, location, folder)


def _checked_path(table: Table, key: str, location: str, folder: Path) -> str:
    return table.check(key, _from(folder, location), local_path)


def _from(folder: Path, location: str) -> str:
    """A relative path seen from `folder`; URIs and absolute paths as they are."""
    return location if len(urlparse(location).scheme) > 1 else str(folder / Path(location).expanduser())
