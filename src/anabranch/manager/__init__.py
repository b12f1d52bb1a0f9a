"""Deciding on adaptations between two batches: pure functions from a snapshot of the run to actions.

    plan_shape        the plan as policies see it: operators, edges, keys, families
    monitor           from reports and manifests to a snapshot
    snapshot          what policies decide on
    order_costs       what orders of joins cost, as policies see it
    order_statistics  how that is remembered, and how often it is measured
    costs/            what processors have to bear, and from which operator; one cost model per file
    policies/         which actions a snapshot calls for, one family of policies per file
    actions/          what can be done to a running query, one action per file
    adaptation        calls policies in turn, and carries out their actions
    distribution      which processor has which state: manifests, routings, relocations under way
    diffusion         groups spread over several processors, and gathered; why results stay exact
    diffusable        which groups can be diffused
    filling           a migrating query's new operators get their state from what is there
    changing          which state a changed query goes on with, and what of it is lacking
    feeding           rows of them that wait, let through in pieces
    manual            relocating, spilling and rescaling, as a user asks for them
    relocation        the protocol of a relocation, as a state machine
    ending            which steps are made when the input has ended
    debt              the results that spilling has postponed
    waiting           whether rows wait, or results are owed
    budgets           how much memory each processor may use
    memory_use        how much of that is used for what, and when it is too little

Everything is an edit of metadata; nothing here writes, or knows Spark. Where partition groups begin in a run file is
looked up in the file if no report has said it.
"""
