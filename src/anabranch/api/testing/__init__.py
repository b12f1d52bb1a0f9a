"""Testing continuous queries: `anabranch.testing` for a user. Batches go straight to the steps of a run.

steps      the interface for tests: ask queries, feed rows, adapt, crash, go on; see answers and state
rows       rows as tests write them, brought to the types of their stream
streams    streams that are fed by hand
fed_run    opens a run and brings its batches, in the place of Spark's streaming query
crash      makes a step fail on purpose
collected  the answers so far
state      the present state, group by group
"""
