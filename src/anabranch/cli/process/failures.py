"""The failures of commands: one line on stderr, and an exit code that a script can use.

    0          it worked
    1          it was tried and failed: a wrong result, a damaged checkpoint, a failing run
    2          it was not tried: wrong options, a wrong file or a query that cannot be run
    128 + n    ended by signal n: 130 for Ctrl-C, 143 for kill

Tracebacks are for people who look for a bug in Anabranch: `--debug` shows them.
"""

from __future__ import annotations

import functools
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, NoReturn, ParamSpec

import typer
from py4j.protocol import Py4JJavaError

from anabranch.cli.process import signals
from anabranch.errors import AnabranchError, ConfigError, CorruptStateError, QueryError

FAILED = 1
REFUSED = 2
MAX_CAUSES = 20
EXIT_CODES = "Exit codes: 0 done, 1 failed, 2 refused (options, file or query), 130 Ctrl-C, 143 terminated."

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks, and what Spark writes to its log.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document for programs instead of text for people.")
]

P = ParamSpec("P")


class SparkFailedError(Exception):
    """An error of Spark as text: the first line says what happened, the text of the JVM's exception follows.

    Spark's own exceptions ask the JVM for their text, and when they are reported the JVM is gone.
    """

    @classmethod
    def of(cls, error: Exception) -> SparkFailedError:
        """The error with its text, which is read while the JVM runs."""
        return cls(f"{first_line(error)}\n{error}").with_traceback(error.__traceback__)


class RunInterruptedError(Exception):
    """A run ended by a signal in good order; the message is for the user."""


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose failures end in one clear line; it must have a parameter `debug`."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        debug = bool(kwargs.get("debug"))
        with signals.raised_as_exceptions():
            try:
                command(*args, **kwargs)
                sys.stdout.flush()
                if signals.received() is not None:
                    raise signals.Interrupted
            except typer.Exit:
                raise
            except BrokenPipeError:
                _close_pipe()
            except BaseException as error:
                _end(error, debug)

    return wrapped


def _end(error: BaseException, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exception(error)
    number = signals.received()
    if number is None and isinstance(error, KeyboardInterrupt):
        number = signal.SIGINT
    if number is not None:
        how = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
        detail = f": {error}" if isinstance(error, RunInterruptedError) else "; nothing is left running"
        _say(f"{how}{detail}")
        raise typer.Exit(128 + number)
    if isinstance(error, SystemExit):
        raise error
    if isinstance(error, AnabranchError):
        _say(f"{error}{_remedy(error)}")
        raise typer.Exit(REFUSED if isinstance(error, ConfigError | QueryError) else FAILED)
    if isinstance(error, OSError):
        _say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        raise typer.Exit(FAILED)
    hint = "" if debug else " (--debug shows where)"
    kind = "Spark" if isinstance(error, SparkFailedError) else type(error).__name__
    _say(f"{kind}: {first_line(error)}{hint}")
    raise typer.Exit(FAILED)


def _remedy(error: AnabranchError) -> str:
    """Advice on damage, if the message has none itself."""
    if not isinstance(error, CorruptStateError) or "restore" in str(error).lower():
        return ""
    return ". Restore the checkpoint as a whole from a copy, or use another; anabranch inspect names all damage"


def first_line(error: BaseException) -> str:
    """The first line of an error, without the stack trace, the codes and the ids that Spark puts around it."""
    text = _java_message(error) if isinstance(error, Py4JJavaError) else str(error)
    lines: list[str] = (text.strip() or "no message").splitlines()
    return lines[0].rpartition(" terminated with exception: ")[2].partition(" SQLSTATE")[0]


def _java_message(error: Py4JJavaError) -> str:
    """The message of an exception in the JVM: of its causes, the first with a name in Spark's list of errors, or the
    last."""
    cause, messages = error.java_exception, list[str]()
    while cause is not None and len(messages) < MAX_CAUSES:
        messages.append(str(cause.getMessage() or cause.toString()))
        cause = cause.getCause()
    return next((message for message in messages if message.startswith("[")), messages[-1])


def _say(message: str) -> None:
    print(f"anabranch: {message}", file=sys.stderr)


def _close_pipe() -> NoReturn:
    """The reader of our output went away, as `head` does: end quietly, and keep Python from complaining at exit."""
    sys.stdout = open("/dev/null", "w")  # noqa: SIM115, it stays open until the process ends
    raise typer.Exit(FAILED)


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Print what is wrong and end the command."""
    _say(message)
    raise typer.Exit(code)
