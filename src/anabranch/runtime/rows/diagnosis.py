"""Turn errors of Spark that are due to the data into errors that tell the user what to do.

Bad rows of a stream never get here: they are found before the exchange and reported by processors. What is left are
records that a source cannot read, and SELECT expressions or conditions between streams that fail on a joined row.
Spark's account of the former hides the cause below the exception that Python sees; that of the latter does not name the
row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from anabranch.errors import AnabranchError, BadRowError, DiskFullError
from anabranch.plan.query import Output
from anabranch.runtime.rows.fallible import VALUE, judge, try_value
from anabranch.runtime.rows.notes import row_text
from anabranch.state.store import FREE_SOME, NO_SPACE

# Classes of SQLSTATE: data exception, constraint violation (such as a duplicate map key), raise_error, called routine.
_OF_THE_DATA = frozenset({"22", "23", "P0", "39"})
NO_SPACE_OF_JAVA = "No space left on device"
_UNREADABLE = ("[FAILED_READ_FILE", "[MALFORMED_RECORD_IN_PARSING")


def unreadable_source(error: BaseException) -> AnabranchError | None:
    """The error to raise for a file or record that a source cannot read; None if Spark's error is about something
    else."""
    story = list(_causes(error))
    if not any(cause.startswith(_UNREADABLE) for cause in story):
        return None
    message = f"a source cannot be read: {' '.join(dict.fromkeys(story))}"
    if not any(cause.startswith(_UNREADABLE[1]) for cause in story):
        return AnabranchError(message)
    return BadRowError(
        f"{message} What becomes of malformed records is up to the source's options: with mode=PERMISSIVE, what cannot "
        "be read is null and the record stands in the column that columnNameOfCorruptRecord names; with "
        "mode=DROPMALFORMED it is left out"
    )


def full_disk_inside(error: BaseException) -> AnabranchError | None:
    """The error to raise for a full disk that a task or Spark wrote to; None if Spark's error is about something
    else."""
    story = " ".join([str(error), *_causes(error)])
    if NO_SPACE not in story and NO_SPACE_OF_JAVA not in story:
        return None
    match = re.search(rf"{NO_SPACE} [^(]*", story)
    where = match[0].strip() if match else "a disk that Spark writes to is full (spark.local.dir, checkpoint or sink)"
    return DiskFullError(f"{where}. {FREE_SOME}")


def is_of_the_data(error: BaseException) -> bool:
    """Whether Spark failed on a value, not on the way it was run or ended."""
    return isinstance(error, PySparkException) and (error.getSqlState() or "")[:2] in _OF_THE_DATA


def failing_joined_row(
    condition: str | None, outputs: Sequence[Output], joined: DataFrame, error: BaseException
) -> AnabranchError | None:
    """Which expression over joined rows fails, and on which of them; None if none does.

    Computes the joined rows once more. That is as good as the first time, and happens only before the run ends.
    """
    conditions = () if condition is None else (condition,)
    names = [f"the condition {text}" for text in conditions]
    names += [f"the column {output.name}, {output.expression}," for output in outputs]
    judged = judge(joined, [*conditions, *(output.expression for output in outputs)])
    tried = {n: try_value(joined.sparkSession, one) for n, one in enumerate(judged) if one.can_fail}
    if not tried:
        return None
    if condition is not None:
        joined = joined.where(tried[0].isNull() | tried[0][VALUE] if 0 in tried else condition)
    failed = [one.isNull() for one in tried.values()]
    try:
        failing = joined.where(reduce(or_, failed)).select(row_text(joined), *failed).first()
    except PySparkException:
        return None  # the first error is the one to tell
    if failing is None:
        return None
    name = names[list(tried)[failing[1:].index(True)]]
    return BadRowError(
        f"{name} fails on a joined row: {str(error).splitlines()[0]} The row is {failing[0]}. A joined row cannot be "
        "put into quarantine, because the rows it is made of may be part of other results; use try_cast, try_divide "
        "and the like"
    )


def _causes(error: BaseException) -> Iterator[str]:
    """The messages of the exceptions inside the JVM that led to this one, outermost first."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        message = str(java.getMessage() or java.getClass().getSimpleName()).splitlines()
        yield message[0].strip() if message else ""
        java = java.getCause()
