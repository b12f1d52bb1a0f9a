"""Deciding on adaptations between two batches: pure functions from a snapshot of the run to actions.

    plan_shape          the plan as policies see it: operators, edges, keys, families
    runtime_monitor     from reports and manifests to a snapshot
    snapshot            what policies decide on
    order_costs         what orders of joins cost, as policies see it
    order_statistics    how that is remembered, and how often it is measured
    costs/              what processors have to bear, and from which operator; one cost model per file
    policies/           which actions a snapshot calls for, one family of policies per file
    estimates/          what an action is predicted to gain and to cost, in seconds; one kind of action per file
    arbitration/        which of many proposals are done, and what comes of them
    actions/            what can be done to a running query, one action per file
    decision_maker      calls policies in turn, and carries out their actions
    distribution        which processor has which state: manifests, routings, relocations under way
    patterns/           where operators are at first, one pattern per file
    allocation/         where operators are wanted, and the six steps by which they get there
    tiers/              clusters of processors, each of which adapts by itself
    query_plan_manager  whether a distribution of a plan is valid
    connection_manager  brings state and rows to where a placement wants them
    diffusion           groups spread over several processors, and gathered; why results stay exact
    diffusable          which groups can be diffused
    shadows/            the state of a migrating query's new operators
    manual              relocating, spilling and rescaling, as a user asks for them
    relocation          the protocol of a relocation, as a state machine
    ending              which steps are made when the input has ended
    waiting             whether rows wait, or results are owed
    memory/             budgets, what they are used for, and the results that spilling has postponed

Everything is an edit of metadata; nothing here writes, or knows Spark. Where partition groups begin in a run file is
looked up in the file if no report has said it. The runtime monitor, the decision maker, the query plan manager and the
connection manager are the parts of D-CAPE's distribution manager (paper 5, section 4.3), in the order of a decision.
"""
