"""Anabranch: adaptive continuous queries on Apache Spark.

    import anabranch as ab

    spark = ab.local_session()
    engine = ab.Engine(spark, checkpoint="state")
    engine.register("A", stream_a, time="ts", lateness="10 seconds")
    engine.register("B", stream_b, time="ts", lateness="10 seconds")
    query = engine.sql("SELECT A.k, A.v, B.v AS bv FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k")
    run = query.writeStream.format("parquet").option("path", "out").trigger(availableNow=True).start()
    run.awaitTermination()
"""

__version__ = "0.1.0"

from anabranch.api.engine import Engine
from anabranch.api.query import Query
from anabranch.api.run import Run
from anabranch.api.session import local_session
from anabranch.errors import AnabranchError

__all__ = ["AnabranchError", "Engine", "Query", "Run", "__version__", "local_session"]
