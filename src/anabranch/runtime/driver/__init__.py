"""What the driver does: one step per batch, steps without a batch, and Spark's query around them.

prepare             from bound queries to what runs
open_run            queries, plan, checkpoint and sinks put together: a run whose last step is in force
streaming_query     Spark's streaming query that brings the batches
step_runner         what every batch is given to, and who makes steps between two batches
gate                batches pass it until somebody asks the run to change or to stop
sessions            the Spark sessions of batches and of sinks
context             what all steps under one plan have in common
step                one step: run the processors, deliver, commit
orders              what a step asks of each processor
times               what is late, dead and settled in a step
commit              the end of a step: policies decide, the step counts, events tell
step_result         what a step is told, and what it tells
counters            what a run has done since it was started
migration           a query's joins in another order while it runs
change              another query in the place of one that runs
migration_strategy  by which strategy, if that is left to us
measure_orders      what other orders of joins would cost
manual_changes      what a user asks of a running query: relocate, rescale, memory
read_once           streams that cannot be read twice
failure             why a step has failed, in words that help
"""
