"""Sorted runs: the files that rows lie in, and what lists them.

run           a run file, and its rows in memory (`Segment`)
slice         a range of a run file, restricted to some partition groups; sorted runs made of slices
expiry        rows whose time is over: dropped, or spared for spilled state
merge         a merge of sorted runs, carried out a bounded number of rows at a time
merge_choice  which sorted runs are merged with each other
spine         all active state of one input on one processor: sorted runs, and the merges among them
merge_budget  how many rows merges may move in a step
"""
