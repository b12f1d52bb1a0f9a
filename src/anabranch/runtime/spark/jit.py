"""Keep the JVM's optimising compiler for code that touches rows.

A streaming query plans, serialises and schedules a few tasks per batch. That code is large and never hot, yet within
the first minutes it reaches the thresholds of C2, which then spends a quarter of two cores' time on it: half a second
for one method of `ObjectOutputStream`. The fast compiler's code is as good for work that takes milliseconds per batch.
"""

from __future__ import annotations

import json
import tempfile
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

# Serialisation of tasks, reading of closures' bytecode, sizes of broadcasts, configuration, and the planner. Nothing
# that is called per row: a class that C2 may not compile is not inlined into others either.
SELDOM_HOT = (
    "java/io/ClassCache",
    "java/io/ObjectInputStream",
    "java/io/ObjectOutputStream",
    "java/io/ObjectStreamClass",
    "java/lang/ClassValue",
    "java/lang/invoke/",
    "java/util/ServiceLoader",
    "org/apache/hadoop/conf/",
    "org/apache/hadoop/io/WritableUtils",
    "org/apache/spark/internal/config/",
    "org/apache/spark/sql/catalyst/QueryPlanningTracker",
    "org/apache/spark/sql/catalyst/analysis/",
    "org/apache/spark/sql/catalyst/expressions/codegen/Code",
    "org/apache/spark/sql/catalyst/optimizer/",
    "org/apache/spark/sql/catalyst/plans/",
    "org/apache/spark/sql/catalyst/rules/",
    "org/apache/spark/sql/catalyst/trees/",
    "org/apache/spark/sql/internal/",
    "org/apache/spark/util/SizeEstimator",
    "org/apache/xbean/asm9/",
)


# Set in a JVM that has been told, since directives add up.
_TOLD = "anabranch.jit"


def spare_compiler(spark: SparkSession) -> bool:
    """Tell the driver's JVM, once, to leave `SELDOM_HOT` to its fast compiler; False if it does not take orders."""
    jvm: Any = spark._jvm
    system = jvm.java.lang.System
    if system.getProperty(_TOLD) is None:
        directives = [{"match": [f"{prefix}*.*" for prefix in SELDOM_HOT], "c2": {"Exclude": True}}]
        with tempfile.NamedTemporaryFile("w", prefix="anabranch-jit-", suffix=".json") as file:
            json.dump(directives, file)
            file.flush()
            try:
                answer = diagnostic_command(spark, "compilerDirectivesAdd", file.name)
            except Py4JError as error:
                answer = str(error)
        system.setProperty(_TOLD, answer)
    return "directives added" in system.getProperty(_TOLD)


def diagnostic_command(spark: SparkSession, command: str, *arguments: str) -> str:
    """Run one of jcmd's commands from inside the JVM, through its management bean."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway

    def array(kind: object, *values: object) -> object:
        made = gateway.new_array(kind, len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    text, thing = jvm.java.lang.String, jvm.java.lang.Object
    bean = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    given, kinds = ([array(text, *arguments)], ["[Ljava.lang.String;"]) if arguments else ([], [])
    call = array(thing, bean, command, array(thing, *given), array(text, *kinds))
    # By reflection on the interface, because the server's own class is not open to callers.
    methods = jvm.java.lang.Class.forName("javax.management.MBeanServer").getMethods()
    invoke = next(method for method in methods if method.getName() == "invoke")
    return str(invoke.invoke(jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer(), call))
