"""Merges of sorted runs: which ones, how much in one step, and the merge itself.

merge         a merge of sorted runs, carried out a bounded number of rows at a time
merge_choice  which sorted runs are merged with each other
merge_budget  how many rows merges may move in a step
"""
