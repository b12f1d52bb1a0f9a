"""One operator in a step, on one processor.

operator_step  what it does, in order
working        the operator at work as one value that the functions of its step take
holding        rows of some groups wait, others are let through
answering      the time up to which a grouping answers each partition group
upkeep         purging, inserting and merging state
clean_up       results that spilled groups owe
"""
