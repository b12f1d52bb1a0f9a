"""Where operators are, and how they come to be elsewhere (paper 5, chapter 6).

wanted        what a user or a policy wants of it, or why that cannot be
reallocation  the six steps by which operators go to other processors, as a state machine
properties    what users know of processors, operators and the plan, for cost models of their own
table         the distribution table: operator -> processors, with state, rates and cost
"""
