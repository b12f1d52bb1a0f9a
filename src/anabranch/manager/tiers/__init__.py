"""Tiers: a manager of managers puts queries on clusters of processors, and each cluster adapts by itself (paper 5,
section 4.2).

    clusters      which processors make up which cluster
    queries       which cluster each query is in, by what a program wants and by where its operators are
    within        what a cluster's policies see of a run, and that none of their actions leaves the cluster
    sending       where the operators of a query go that is sent to another cluster

`patterns/tier` is the pattern that begins with this. Which cluster an operator is in is told by its processors, so it
is part of where operators are, and survives whatever that survives. An operator that several queries share is in the
cluster of the first of them.
"""
