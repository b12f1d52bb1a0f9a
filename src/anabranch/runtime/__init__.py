"""Where it runs: Spark, and only Spark. Rooms in the order in which queries and rows go through them.

spark     what PySpark does not expose: settings of sessions, logs, the JVM's compiler, Python workers
rows      from a registered stream to clean, typed rows: keys, carried types, notes on bad rows
compile   network -> columns, lanes, layout: what Spark and the processors are asked to run
exchange  packing rows, routing them to processors, one round after the other
sinks     where answers go
driver    one step per batch, steps without a batch, failures, and Spark's query around them
"""
