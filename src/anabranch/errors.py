"""Every error Anabranch raises on purpose.

One hierarchy, so that a user can catch `AnabranchError` and be done. A message says what happened, where
(stream, column, file, step), and what to do next. Each leaf below is a decision a caller may want to take:
a query to be rewritten, an input row to be looked at, a checkpoint to be restored.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AnabranchError(Exception):
    """Base of all errors raised by Anabranch."""


class QueryError(AnabranchError):
    """The query text cannot be understood or bound to the registered streams."""


class UnsupportedError(QueryError):
    """The query is understood, but uses a construct that Anabranch does not support."""


class ConfigError(AnabranchError):
    """An option, a path, a stream definition or a configuration file is wrong."""


class MigrationError(AnabranchError):
    """A query has not come to the order of joins that was asked for."""


class BadRowError(AnabranchError):
    """Rows cannot be processed; the message names stream and column, or expression or file, and a sample."""


class CheckpointError(AnabranchError):
    """The checkpoint cannot be used as it is."""


class ResumeMismatchError(CheckpointError):
    """The checkpoint was written by a different query, schema, group count or engine version."""


class CheckpointInUseError(CheckpointError):
    """Another run holds the checkpoint, or has taken it over since."""


class CorruptStateError(CheckpointError):
    """A state file is damaged or missing; the message names it. Its content is never served."""


class DiskFullError(CheckpointError):
    """There is no space left for state or results. The last committed step is intact."""


class InconsistentStepError(AnabranchError):
    """What processors report of a step does not add up. Nothing of the step was committed."""


class BenchmarkError(AnabranchError):
    """A benchmark could not be run, or its contenders disagree about the answer."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint to append to a message about an unknown name: the closest known one, else the list of all."""
    names = sorted(known)
    folded = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(name.lower(), folded, n=1)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    return f"known: {', '.join(names)}" if names else "none is known"
