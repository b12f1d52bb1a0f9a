"""Who writes Spark's own logs in a checkpoint: `DurableFiles.java`, compiled in the driver's JVM.

Spark compiles the code it generates for queries with Janino, which is therefore always at hand. The class is defined
beside its parent in Spark's class loader, so that any thread finds it by its name.
"""

from __future__ import annotations

import threading
from importlib.resources import files
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

# Chooses the class that writes offset logs, commit logs and the logs of file sources.
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"

PACKAGE = "org.apache.spark.sql.execution.streaming.checkpointing"
DURABLE = f"{PACKAGE}.DurableFiles"
# Spark's own: as safe for one writer, but it starts processes and syncs nothing.
PLAIN = f"{PACKAGE}.FileSystemBasedCheckpointFileManager"

_defining = threading.Lock()


def file_manager(spark: SparkSession) -> str:
    """The name of a class for `FILE_MANAGER`: ours, or Spark's where ours cannot be compiled."""
    with _defining:
        try:
            if not _is_defined(spark._jvm):
                _define(spark._jvm)
        except Py4JError:
            return PLAIN
        return DURABLE


def _is_defined(jvm: Any) -> bool:
    try:
        jvm.java.lang.Class.forName(DURABLE)
    except Py4JError:
        return False
    return True


def _define(jvm: Any) -> None:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(files(__package__).joinpath("DurableFiles.java").read_text("utf-8"))
    handles = jvm.java.lang.invoke.MethodHandles
    beside = handles.privateLookupIn(jvm.java.lang.Class.forName(PLAIN), handles.lookup())
    compiled = compiler.getBytecodes()
    for name in sorted(compiled):  # DurableFile, then DurableFiles, which needs it to be there
        beside.defineClass(compiled[name])
