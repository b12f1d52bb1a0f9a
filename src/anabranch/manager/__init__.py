"""Who decides: what is known between two batches, and pure functions from that to actions.

    plan_shape    the plan as policies see it: operators, edges, keys, families
    monitor       from reports and manifests to a snapshot
    snapshot      what policies decide on
    policies/     what to do about it, one family per file
    actions/      what can be done, with the reason why, one action per file
    adaptation    policies asked in turn, and their actions carried out
    distribution  who has what: manifests, placements, relocations under way
    relocation    the protocol of a relocation, as a state machine
    ending        which steps are made when the input has ended
    debt          what spilling has postponed
    budgets       how much memory each processor may use
    memory_use    what it is used for, and when there is too little of it

Everything is an edit of metadata; nothing here does I/O or knows Spark.
"""
