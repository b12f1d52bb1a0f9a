"""An embedded Spark for the command line: quiet, and gone when the command is.

Quiet: the stderr of the JVM and of Spark's Python workers goes to a log file, because the launcher is started with
stderr redirected and its children inherit that. The log is removed with the scratch folder; after an error its end can
be quoted.

Gone: Spark is stopped from a fresh thread, which has a connection of its own to the JVM (the main thread may have
been interrupted in the middle of a reply), with a time limit. Then every process that descends from us and did not
exist before is ended, first politely. All of Spark's temporary files are in the scratch folder, so even a killed JVM
leaves nothing in /tmp.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from py4j.protocol import Py4JJavaError
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.api.session import local_session
from anabranch.cli.process import signals
from anabranch.cli.process.failures import SparkFailedError, first_line
from anabranch.errors import ConfigError
from anabranch.runtime.compile.checks import unlogged

STOP_SECONDS = 15.0
END_SECONDS = 5.0

# A run this short never gets back what the JVM's optimising compiler costs. Without that compiler a demo of 3 x 1M rows
# took 31 s of processor time instead of 51 s (one run each, busy machine); the serial collector was not measured apart.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@contextmanager
def embedded_spark(
    conf: Mapping[str, str] | None = None, *, debug: bool = False, short: bool = False
) -> Iterator[SparkSession]:
    """A session until the end of a `with`; with `debug` Spark's log stays visible.

    `short` is for sessions of less than a minute: they compile quickly instead of well.
    """
    before = set(_descendants())
    with tempfile.TemporaryDirectory(prefix="anabranch-spark-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        try:
            with signals.kept():
                session = _start(scratch, dict(conf or {}), debug, short)
            with contextlib.nullcontext() if debug else unlogged():
                yield session
        except (Py4JJavaError, PySparkException) as error:
            raise SparkFailedError.of(error) from None
        finally:
            with signals.ignored():
                _end_everything(before)


def _start(scratch: Path, conf: dict[str, str], debug: bool, short: bool) -> SparkSession:
    log = scratch / "spark.log"
    java = [f"-Djava.io.tmpdir={scratch}", f"-Dderby.system.home={scratch}", *(SHORT_LIVED if short else ())]
    settings = {
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": " ".join(java),
        **conf,
    }
    try:
        with contextlib.nullcontext() if debug else _stderr_to(log):
            return local_session(log_level="WARN" if debug else "ERROR", conf=settings)
    except (Py4JJavaError, PySparkException) as error:
        started = isinstance(error, Py4JJavaError)
        reason = first_line(error) if started else _last_words(log) or first_line(error)
        raise ConfigError(
            f"Spark does not start: {reason} (look at the settings for Spark; it needs Java 17 or newer, see JAVA_HOME)"
        ) from error


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Processes started inside write their stderr to `path` for as long as they live."""
    saved = os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(target)
        os.close(saved)


def _last_words(log: Path) -> str:
    """The line in the log of a launcher that gave up that most likely has the reason."""
    if not log.exists():
        return ""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    words = ("nvalid", "rror", "xception", "JAVA_HOME", "No such file")
    telling = [line for line in lines if any(word in line for word in words)]
    return (telling or lines or [""])[0]


def _end_everything(before: set[psutil.Process]) -> None:
    ours = [process for process in _descendants() if process not in before]
    stopping = threading.Thread(target=_stop_spark, name="anabranch-stop", daemon=True)
    stopping.start()
    stopping.join(STOP_SECONDS)
    # A launcher that is interrupted may have started another process since: look again until there is none.
    while ours := [process for process in {*ours, *_descendants()} if process not in before and _is_alive(process)]:
        _end(ours)
    SparkContext._gateway = None
    SparkContext._jvm = None


def _stop_spark() -> None:
    session = SparkSession._instantiatedSession
    if session is not None:
        # An error here only means that it is gone already; what remains is ended from outside.
        with contextlib.suppress(Exception):
            for query in session.streams.active:
                query.stop()
            session.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()


def _end(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, stubborn = psutil.wait_procs(processes, timeout=END_SECONDS)
    for process in stubborn:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(stubborn, timeout=END_SECONDS)


def _descendants() -> list[psutil.Process]:
    children: list[psutil.Process] = psutil.Process().children(recursive=True)
    return children


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
