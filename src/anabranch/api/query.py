"""A continuous query: bound, checked against the streams' schemas, ready to get a sink."""

from __future__ import annotations

from textwrap import shorten
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import types as T

from anabranch.api.picture import draw
from anabranch.api.session_settings import settings_for_a_query
from anabranch.api.targets import UNNAMED
from anabranch.api.writer import Writer
from anabranch.errors import QueryError
from anabranch.plan.explain import Picture
from anabranch.plan.network import Request
from anabranch.plan.query import ContinuousQuery
from anabranch.plan.svg import as_svg
from anabranch.runtime.compile.checks import unlogged
from anabranch.runtime.compile.document import query_document

if TYPE_CHECKING:
    from anabranch.api.engine import Engine


class Query:
    """A query made by `Engine.sql`. It does nothing until `writeStream ... start()`."""

    def __init__(self, engine: Engine, bound: ContinuousQuery, arguments: dict[str, str] | None = None) -> None:
        """Lay the query out and let Spark analyse all its expressions, so that errors come before any data.

        `arguments` are those of `Engine.sql`, for the record of a run.
        """
        self._engine = engine
        self._bound = bound
        self._arguments = arguments or {}
        self._made_under = settings_for_a_query(engine)
        try:
            with unlogged():
                self._plan = engine._prepare([Request(UNNAMED, bound)])
        except PySparkException as error:
            reason = (error.getMessage() or str(error)).split("\n")[0].partition(" SQLSTATE")[0]
            raise QueryError(f"Spark cannot analyse the query: {reason}") from error
        self._described = query_document(self._plan)

    def __repr__(self) -> str:
        """One line: the text, shortened, and the columns of the answer."""
        text = shorten(self._bound.text, 100, placeholder=" ...")
        return f"<Query {text!r}: {', '.join(self.schema.names)}>"

    @property
    def schema(self) -> T.StructType:
        """The schema of the answer."""
        return self._plan.schemas[0]

    @property
    def writeStream(self) -> Writer:
        """A writer that gives the answer its sink, as the `writeStream` of a Spark DataFrame."""
        return Writer(self)

    def explain(self) -> None:
        """Print the plan: inputs with windows and predicates, join key, groups and processors."""
        print(self.plan)

    @property
    def plan(self) -> str:
        """The plan as text, as `explain` prints it."""
        return str(self._picture())

    def _repr_html_(self) -> str:
        """The plan as a picture, in notebooks."""
        return as_svg(self._picture())

    def _picture(self) -> Picture:
        settings = self._engine._settings
        return draw(self._plan, self._plan.initial, settings.processors, clusters=settings.clusters)
