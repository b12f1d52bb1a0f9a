"""The inputs of benchmarks: generated once, and read by every contender.

recipe         an input as a value, the files made from it, and the number of results that it must give
flat_recipes   the inputs of `bench flat`
skewed         two streams of which a few keys have most rows
growing_state  two streams with wide rows, whose state grows from batch to batch, and edits of that state
"""
