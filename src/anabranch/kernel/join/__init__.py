"""The m-way window join of a batch.

window_join   the join as a stateful operator
multiway      the deltas of a batch against state, every new combination once
gather        the rows of all inputs that have the wanted hashes
combinations  enumerating combinations of rows with one hash
"""
