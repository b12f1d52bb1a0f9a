"""Explain why a step has failed: by the error that a processor has written, or by a search for the row at fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

import anabranch.errors as errors
from anabranch.errors import AnabranchError
from anabranch.kernel.delta import INPUT
from anabranch.plan.query import Output, all_of
from anabranch.runtime.compile.layout import Layout
from anabranch.runtime.exchange.pack import joined_columns
from anabranch.runtime.rows.diagnosis import failing_joined_row, full_disk_inside, is_of_the_data, unreadable_source
from anabranch.runtime.sinks.answers import Answers
from anabranch.state.store import read_document


def explain_failure(
    error: BaseException, directory: Path, layout: Layout, answers: Answers, yielded: Callable[[], list[DataFrame]]
) -> BaseException:
    """The error that a user should see for an error in a step.

    `directory` has the reports of the step's processors; `yielded` makes the rows that they yield in each round.
    """
    if isinstance(error, AnabranchError):
        return error
    for path in sorted(directory.glob("failed-*.json")):
        body = read_document(path)
        kind = getattr(errors, body["error"], AnabranchError)
        explained: AnabranchError = kind(body["message"])
        return explained
    explanation = full_disk_inside(error) or unreadable_source(error)
    if explanation is None and is_of_the_data(error):
        explanation = _joined_row(error, layout, yielded()) or answers.failing_row(error)
    return explanation or error


def _joined_row(error: BaseException, layout: Layout, yielded: list[DataFrame]) -> AnabranchError | None:
    """The error with the joined row that an expression between two rounds fails on; None if it fails on none."""
    for exchange, rows in zip(layout.exchanges, yielded, strict=False):
        for lane in exchange.lanes:
            joined = rows.where(f"{INPUT} = {lane.tag}").selectExpr(*joined_columns(lane))
            computed = [Output(f"{n}", text) for n, (_, text) in enumerate(lane.computed, start=1)]
            explanation = failing_joined_row(all_of(lane.conditions), computed, joined, error)
            if explanation is not None:
                return explanation
    return None
