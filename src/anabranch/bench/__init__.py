"""Benchmarks: Anabranch beside the engines people use today, beside its own promises, and beside the papers' figures.

throughput      one input through Anabranch and through Spark's own stream-stream joins; its options make it the
                benchmarks `chain`, `shared` and `groupby`, too
flat            cost follows the work of a batch, and not the size of the history
tight           state may be larger than its memory
relocation      the costs of moving state, in a query that runs in this process
diffusion       the costs of spreading hot partition groups over processors, switching roles and going back, likewise
migration       the costs of changing the order of joins, likewise
orders          a run that starts in its worst order of joins becomes as fast as one that starts in its best
skew            a join with a hot key, hash partitioned, diffused, and by Spark itself
changes         the pause that other queries see when queries are added and removed, likewise
inputs/         the inputs of those that share one, or compare engines
contenders/     the engines that read them, each in a process of its own
slow_machines/  processors that get a share of a core
experiments/    the papers' figures
machine         the machine that a benchmark ran on
raw_results     the values of a benchmark, as a file
"""
