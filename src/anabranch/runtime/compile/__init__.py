"""Compile a network into what Spark and the processors run.

columns         the types and names of all columns of a network
group_types     the types of a grouping's keys, arguments and results
fuse            expressions that processors can compute themselves
checks          what only Spark's analysis can refuse
layout          the rounds layout, which may change between two batches: the values that describe a compiled network
rounds/         the rounds layout of a network, put together from its parts
packed          the packed layout, which lives as long as Spark's query: what of the streams is packed
splitting       what each input takes of packed rows; whether they are enough for a plan
prepared        a prepared plan: queries that are ready to run together
document        how a checkpoint describes them
"""
