"""What the driver does: one step per batch, steps without a batch, and Spark's query around them.

prepare          from bound queries to what runs
streaming_query  Spark's streaming query that brings the batches
gate             batches pass it until somebody asks the run to change or to stop
read_once        streams that cannot be read twice
step             one step: run the processors, deliver, commit
times            what is late, dead and settled in a step
step_result      what a step is told, and what it tells
counters         what a run has done since it was started
manual_changes   what a user asks of a running query: relocate, rescale, memory
failure          why a step has failed, in words that help
"""
