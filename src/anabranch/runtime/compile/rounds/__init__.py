"""The rounds layout of a network, put together from its parts.

lanes           how rows travel from one operator to a port of another
inputs          how the rows of each source are packed, and what is stored of them
event_times     the lateness of each source, and what the rows at each port can still meet
joins           the join that a processor runs for an operator
operator_plans  what a processor does with each operator, and where the results go
outlets         how the rows of an answer leave
lay_out         the layout, of all of the above
"""
