"""What PySpark does not expose, and how Spark is told to behave.

internals       Spark SQL classes that PySpark does not expose, reached through py4j
selection       rows selected and routed with one analysis for each data frame
query_settings  the settings of a session that decide what a query means
batch_session   the settings of the session in which batches arrive
logs            Spark's own logs in a checkpoint, written durably (DurableFiles.java)
jit             the JVM's optimising compiler, kept for code that touches rows
worker          Spark's Python workers, prepared for processors
"""
