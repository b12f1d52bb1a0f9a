"""Benchmarks: Anabranch beside the engines people use today, beside its own promises, and beside the papers' figures.

throughput      one input through Anabranch and through Spark's own stream-stream joins; its options make it the
                benchmarks `chain`, `shared` and `groupby`, too
flat            cost follows the work of a batch, and not the size of the history
tight           state may be larger than its memory
relocation      what it costs to move state, in a query that runs in this process
migration       what it costs to change the order of joins, likewise
orders          whether a run that starts in its worst order of joins comes to be as fast as one that starts in its best
skew            a join with a hot key, hash partitioned, diffused, and as Spark's own
changes         what other queries notice when queries are added and removed, likewise
inputs/         the inputs of the first three
contenders/     the engines that read them, each in a process of its own
slow_machines/  processors that get a share of a core
experiments/    the papers' figures
machine         what a benchmark ran on
raw_results     what was measured, as a file
"""
