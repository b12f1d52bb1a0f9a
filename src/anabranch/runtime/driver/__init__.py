"""The driver: it makes one step per batch, steps without a batch, and Spark's streaming query around them.

prepare          from bound queries to a plan that Spark has analysed
read_once        streams that cannot be read twice
open_run         opens a run: queries, plan, checkpoint and sinks put together, with the last step in force
streaming_query  Spark's streaming query, which brings the batches
sessions         the Spark sessions of batches and of sinks
gate             lets one step at a time through, until the run is to change or to stop
step_runner      the function that Spark calls with every batch; changes take turns with batches here
step_maker       makes one step after another, and explains one that fails
extra_steps      steps without a batch, between two batches
status           the state of a run after its last step: placements, rows that wait, results that are owed
step/            one step: run the processors, deliver, commit
changes/         changes of a run between two batches: migrations, other queries, relocation by hand
"""
