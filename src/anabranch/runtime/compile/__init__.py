"""Compile a network into what Spark and the processors run.

columns         the types and names of all columns of a network
group_types     the types of a grouping's keys, arguments and results
fuse            expressions that processors can compute themselves
checks          what only Spark's analysis can refuse
layout          the rounds layout, which may change between two batches: the values that describe a compiled network
lanes           how rows travel from one operator to a port of another
inputs          how the rows of each source are packed, and what is stored of them
event_times     the lateness of each source, and what the rows at each port can still meet
joins           the join that a processor runs for an operator
operator_plans  what a processor does with each operator, and where the results go
outlets         how the rows of an answer leave
lay_out         the rounds layout of a network, put together from all of the above
packed          the packed layout, which lives as long as Spark's query: what of the streams is packed
splitting       what each input takes of packed rows; whether they are enough for a plan
prepared        a prepared plan: queries that are ready to run together
document        how a checkpoint describes them
"""
