"""Testing continuous queries, step by step, without files, triggers and waiting; docs/testing.md shows how.

from anabranch.testing import Clock, Steps

with Steps(spark, "state") as steps:
    steps.stream("A", "k BIGINT, v STRING")
    steps.stream("B", "k BIGINT, w STRING")
    steps.query("SELECT A.v, B.w FROM A, B WHERE A.k = B.k")
    steps.feed(A=[(1, "one")], B=[(1, "eins")])
    assert steps.answer().to_pylist() == [{"v": "one", "w": "eins"}]
"""

from anabranch.api.testing.steps import Steps
from anabranch.quantities.clock import Clock

__all__ = ["Clock", "Steps"]
