"""Testing continuous queries: `anabranch.testing` for a user. Batches go straight to the steps of a run.

steps      what a test does: ask queries, feed rows, adapt, crash, go on; and what it sees
rows       rows as tests write them, brought to the types of their stream
streams    streams that are fed by hand
fed_run    opens a run and brings its batches, in the place of Spark's streaming query
crash      a step fails on purpose
collected  the answers so far
state      the state as it is now, group by group
"""
