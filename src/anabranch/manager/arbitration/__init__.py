"""Deciding which proposals are done: adaptations compete in one unit, and predictions are held against outcomes.

    workload   what processors did, held and were given in the last batches, in seconds and bytes
    proposal   an adaptation that a policy proposes, and what it is estimated to gain and to cost
    trust      how far the word of each kind of adaptation counts, by how its predictions came true
    record     adaptations under way: what was predicted of them, and what has come of it
    arbiter    chooses the best proposals that do not conflict
    sentences  what events say about all that

`estimates/` has an estimator per kind of action, and `policies/adaptive` puts policies, estimators and arbiter
together. Everything is a function of snapshots.
"""
