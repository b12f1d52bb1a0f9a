"""Rows on their way to the processors, and one round after the other.

pack        the rows of all streams in one schema
split       from packed rows to the rows of inputs, with their key hashes
route       the processor of each row, or all processors that it goes to
long_rows   rows that are too long for a full Arrow batch
rehash      state hashed on another key, in one pass of Spark
sample      samples of the state at some ports, in one pass of Spark
crossing    all of that, as one selection of Spark's before each round
processors  the processors of a step as Spark runs them: an exchange and a task per processor in each round
"""
