"""Anabranch: adaptive continuous queries on Apache Spark.

    import anabranch as ab

    spark = ab.local_session()
    engine = ab.Engine(spark, checkpoint="state")
    engine.register("A", stream_a, time="ts", lateness="10 seconds")
    engine.register("B", stream_b, time="ts", lateness="10 seconds")
    query = engine.sql("SELECT A.k, A.v, B.v AS bv FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k")
    run = query.writeStream.format("parquet").option("path", "out").trigger(availableNow=True).start()
    run.awaitTermination()

The names below are loaded when they are first used: every Python worker of Spark imports this package to reach the
processor, and should not pay for the parser and the API, which only the driver needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch import testing
    from anabranch.api.engine import Engine
    from anabranch.api.query import Query
    from anabranch.api.run import Run
    from anabranch.api.session import local_session
    from anabranch.api.synthetic import register_sources
    from anabranch.errors import AnabranchError
    from anabranch.manager.actions.reallocate_operator import ReallocateOperator
    from anabranch.manager.costs.cpu_time import CpuTime
    from anabranch.manager.costs.memory_share import MemoryShare
    from anabranch.manager.costs.network_output_rate import NetworkOutputRate
    from anabranch.manager.patterns.fewest_rounds import FewestRounds
    from anabranch.manager.patterns.grouping import Grouping
    from anabranch.manager.patterns.round_robin import RoundRobin
    from anabranch.manager.patterns.spread import Spread
    from anabranch.manager.patterns.tier import Tier
    from anabranch.manager.policies.active_disk import ActiveDisk
    from anabranch.manager.policies.adaptive import Adaptive
    from anabranch.manager.policies.auto_migrate import AutoMigrate
    from anabranch.manager.policies.balance import Balance
    from anabranch.manager.policies.degradation import Degradation
    from anabranch.manager.policies.diffusion import Diffusion
    from anabranch.manager.policies.flux import FluxHybrid, FluxLoad, FluxMemory
    from anabranch.manager.policies.lazy_disk import LazyDisk
    from anabranch.manager.policies.skew_buffer import SkewBuffer
    from anabranch.manager.policies.spill import Spill

__version__ = "0.3.0"
__all__ = [
    "ActiveDisk",
    "Adaptive",
    "AnabranchError",
    "AutoMigrate",
    "Balance",
    "CpuTime",
    "Degradation",
    "Diffusion",
    "Engine",
    "FewestRounds",
    "FluxHybrid",
    "FluxLoad",
    "FluxMemory",
    "Grouping",
    "LazyDisk",
    "MemoryShare",
    "NetworkOutputRate",
    "Query",
    "ReallocateOperator",
    "RoundRobin",
    "Run",
    "SkewBuffer",
    "Spill",
    "Spread",
    "Tier",
    "__version__",
    "local_session",
    "register_sources",
    "testing",
]

_HOMES = {
    "ActiveDisk": "anabranch.manager.policies.active_disk",
    "Adaptive": "anabranch.manager.policies.adaptive",
    "AnabranchError": "anabranch.errors",
    "AutoMigrate": "anabranch.manager.policies.auto_migrate",
    "Balance": "anabranch.manager.policies.balance",
    "CpuTime": "anabranch.manager.costs.cpu_time",
    "Degradation": "anabranch.manager.policies.degradation",
    "Diffusion": "anabranch.manager.policies.diffusion",
    "Engine": "anabranch.api.engine",
    "FewestRounds": "anabranch.manager.patterns.fewest_rounds",
    "FluxHybrid": "anabranch.manager.policies.flux",
    "FluxLoad": "anabranch.manager.policies.flux",
    "FluxMemory": "anabranch.manager.policies.flux",
    "Grouping": "anabranch.manager.patterns.grouping",
    "LazyDisk": "anabranch.manager.policies.lazy_disk",
    "MemoryShare": "anabranch.manager.costs.memory_share",
    "NetworkOutputRate": "anabranch.manager.costs.network_output_rate",
    "Query": "anabranch.api.query",
    "ReallocateOperator": "anabranch.manager.actions.reallocate_operator",
    "RoundRobin": "anabranch.manager.patterns.round_robin",
    "Run": "anabranch.api.run",
    "SkewBuffer": "anabranch.manager.policies.skew_buffer",
    "Spill": "anabranch.manager.policies.spill",
    "Spread": "anabranch.manager.patterns.spread",
    "Tier": "anabranch.manager.patterns.tier",
    "local_session": "anabranch.api.session",
    "register_sources": "anabranch.api.synthetic",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "testing":
        return import_module("anabranch.testing")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
