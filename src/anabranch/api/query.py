"""A continuous query: bound, checked against the streams' schemas, ready to be written somewhere."""

from __future__ import annotations

import os

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

import anabranch
from anabranch.api.writer import Writer
from anabranch.errors import QueryError
from anabranch.plan.explain import Measured, Picture, explain
from anabranch.plan.logical import Applied, ContinuousQuery, StreamSchema, joined_column
from anabranch.plan.svg import as_svg
from anabranch.runtime.analysis import check_answer, check_inputs, check_sources, unlogged
from anabranch.runtime.compile import lay_out
from anabranch.runtime.derive import with_derived
from anabranch.runtime.layout import Layout
from anabranch.runtime.pack import pack
from anabranch.runtime.step import StepSettings, finish
from anabranch.state.store import Json


class Query:
    """A query made by `Engine.sql`. It does nothing until `writeStream ... start()`."""

    def __init__(
        self,
        spark: SparkSession,
        bound: ContinuousQuery,
        frames: dict[str, DataFrame],
        streams: dict[str, StreamSchema],
        settings: StepSettings,
        checkpoint: str | os.PathLike[str],
    ) -> None:
        """Lay the query out and let Spark analyse all its expressions, so that errors come before any data."""
        self._spark = spark
        self._bound = bound
        self._streams = {**streams, **{schema.name: schema for schema in bound.derived}}
        self._settings = settings
        self._checkpoint = checkpoint
        try:
            with unlogged():
                check_sources(spark, bound, frames)
                self._frames = with_derived(spark, bound, frames, self._streams)
                check_inputs(spark, bound, self._frames)
                self._layout = lay_out(
                    spark,
                    bound,
                    self._frames,
                    self._streams,
                    keep_rejected=settings.quarantine is not None,
                    keep_late=settings.late_rows is not None,
                )
                check_answer(spark, bound, self._layout)
                self._packed = pack(self._layout, self._frames)
                self._schema = self._analyse(self._layout)
        except PySparkException as error:
            reason = (error.getMessage() or str(error)).split("\n")[0].partition(" SQLSTATE")[0]
            raise QueryError(f"Spark cannot analyse the query: {reason}") from error

    @property
    def schema(self) -> T.StructType:
        """The schema of the answer."""
        return self._schema

    @property
    def writeStream(self) -> Writer:
        """Say where the answer goes, as with a Spark DataFrame's `writeStream`."""
        return Writer(self)

    def explain(self) -> None:
        """Print the plan: inputs with windows and predicates, join key, groups and processors."""
        print(self.plan)

    @property
    def plan(self) -> str:
        """What `explain` prints."""
        return str(self._picture())

    def _repr_html_(self) -> str:
        """The plan as a picture, in notebooks."""
        return as_svg(self._picture())

    def _picture(self, measured: Measured | None = None) -> Picture:
        return explain(
            self._bound,
            self._streams,
            key_types=[[data_type.simpleString() for data_type in types] for types in self._layout.key_types],
            rounds=self._layout.rounds,
            groups=self._settings.groups,
            processors=self._settings.processors,
            measured=measured,
        )

    def _analyse(self, layout: Layout) -> T.StructType:
        empty = self._spark.createDataFrame([], layout.result_schema)
        return finish(layout, self._bound.residual, empty).schema

    def _aliases(self, part: int) -> list[str]:
        return [self._bound.inputs[i].alias for i in self._bound.inputs_of(part)]

    def _identity(self) -> Json:
        """What a checkpoint of this query belongs to."""
        return {
            "engine version": ".".join(anabranch.__version__.split(".")[:2]),
            "groups": self._settings.groups,
            "session time zone": self._spark.conf.get("spark.sql.session.timeZone"),
            "query": {
                "inputs": {
                    entry.label: {
                        "stream": entry.source.stream,
                        "selections": [
                            {
                                "where": list(selection.conditions),
                                "select": [f"{made.expression} AS {made.name}" for made in selection.outputs],
                            }
                            for selection in entry.source.steps
                        ],
                        "window (us)": entry.input.window,
                        "key": list(entry.input.key),
                        "predicate": entry.input.predicate,
                        "time column": self._streams[entry.source.stream].time,
                        "lateness (us)": self._streams[entry.source.stream].lateness,
                        "columns": {
                            column: self._frames[entry.input.stream].schema[column].dataType.simpleString()
                            for column in entry.input.columns
                        },
                    }
                    for entry in self._layout.inputs
                },
                "aliases": [entry.alias for entry in self._bound.inputs],
                "input order": [entry.label for entry in self._layout.inputs],
                "grouping": self._describe_grouping(),
                "operators": [
                    {
                        "holds": self._aliases(len(self._bound.inputs) + n),
                        "joins": [self._aliases(part) for part in operator.parts],
                        "keys": [list(keys) for keys in operator.keys],
                        "key types": [data_type.simpleString() for data_type in types],
                        "conditions": list(operator.conditions),
                        "columns": [joined_column(*column) for column in operator.columns],
                    }
                    for n, (operator, types) in enumerate(
                        zip(self._bound.operators, self._layout.key_types, strict=False)
                    )
                    if len(self._bound.inputs) + n < len(self._layout.ports)
                ],
                "key types": [data_type.simpleString() for data_type in self._layout.key_types[-1]],
                "residual predicate": self._bound.residual,
                "select": [f"{output.expression} AS {output.name}" for output in self._bound.outputs],
            },
        }

    def _describe_grouping(self) -> Json | None:
        grouping = self._bound.grouping
        if grouping is None:
            return None
        return {
            "operator": None if grouping.applied is None else _describe_operator(grouping.applied),
            "by": list(grouping.keys),
            "aggregates": [f"{call.function}({call.argument or '*'})" for call in grouping.calls],
            "argument types": [data_type.simpleString() for data_type in self._layout.argument_types],
            "having": list(grouping.conditions),
            "last rows": grouping.rows,
            "distinct": grouping.distinct,
            "emit": "batch" if grouping.once else "tuple",
        }


def _describe_operator(applied: Applied) -> Json:
    """What makes an operator another one, as far as that can be told: its class and what it was made with."""
    return {
        "is": repr(applied.operator),
        "keeps": list(applied.columns),
        "gives": applied.gives,
    }
