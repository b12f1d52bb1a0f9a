"""Benchmarks: Anabranch beside the engines people use today, and beside its own promises.

`throughput` runs one input through Anabranch and through Spark's own stream-stream joins; `flat` checks
that cost follows the work of a batch and not the size of the history. Both are built from the same four
parts: a recipe generates the input once (`recipe`, `flat_recipes`), a `Job` describes one run of one engine
(`job`), a child process executes it (`contender`), and the parent measures that child from outside
(`child`, `memory`).
"""
