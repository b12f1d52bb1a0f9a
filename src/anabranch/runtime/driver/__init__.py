"""What the driver does: one step per batch, steps without a batch, and Spark's query around them.

prepare          from bound queries to a plan that Spark has analysed
read_once        streams that cannot be read twice
open_run         queries, plan, checkpoint and sinks put together: a run whose last step is in force
streaming_query  Spark's streaming query, which brings the batches
sessions         the Spark sessions of batches and of sinks
gate             lets one step at a time through, until the run is to change or to stop
step_runner      is given every batch; changes take turns with batches here
step_maker       makes one step after another, and explains one that fails
extra_steps      steps without a batch, between two batches
status           what a run has and owes after its last step
step/            one step: run the processors, deliver, commit
changes/         what changes a run between two batches: migrations, other queries, relocation by hand
"""
