"""From a network to what Spark and the processors are asked to run.

columns      the types and names of all columns of a network
group_types  the types of what a grouping reads and gives
fuse         expressions that processors can compute themselves
checks       what only Spark's analysis can refuse
layout       the rounds layout, which may change between two batches: the values that describe a compiled network
lanes        how rows travel from one operator to a port of another
lay_out      all of it put together
packed       the packed layout, which lives as long as Spark's query: what is read of the streams
splitting    what each input takes of packed rows; whether they are enough for a plan
prepared     queries that are ready to run together
document     how a checkpoint describes them
"""
