"""The demos: their streams, their questions to DuckDB, and their stories.

stage         the parts of every demo: a folder, Spark, the verdict, the last line
stream_files  a generated stream as files, one per batch
question      the run file of `demo`, and the comparison of answers with DuckDB's
shop          the streams of `demo`: orders, payments, shipments
plan          `demo plan`, on the roads of `traffic`
traffic       the streams of `demo plan`: two sensors, and a town of them
migration     `demo migration`, on the streams of `bots`
bots          the streams of `demo migration`: visits, clicks, orders, payments, and bots among them
turn          decides when `demo migration` migrates, read off the batches
"""
