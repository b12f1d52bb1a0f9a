"""Who decides: what is known between two batches, and pure functions from that to actions.

    operators     operators as adaptations see them
    snapshot      what policies decide on: all processors after a step, as numbers
    policies/     what to do about it, one family per file
    actions       what can be done, with the reason why
    adaptation    policies asked in turn, and their actions carried out
    distribution  who has what: manifests, placements, relocations under way
    relocation    the protocol of a relocation, as a state machine
    clean_up      which spilled groups are cleaned up next
    debt          how many results are owed
    budgets       how much memory each processor may use
    memory_use    what it is used for, and when there is too little of it

Everything is an edit of metadata; nothing here does I/O or knows Spark.
"""
