"""What a run remembers: the directory, its steps, its plans, and the state that a step lists.

    directory   the checkpoint directory: taking it, its steps, and what it is made of
    identity    which folder counts as a checkpoint, and which engine may resume it
    lock        one driver at a time
    epochs      only the newest run may commit
    numbered    documents that are named by numbers
    plans       the plans of a checkpoint, and Spark's logs under each
    offsets     Spark's offset logs under a new plan
    records     documents beside the steps: an announced step, what the run is made of, costs of join orders
    retention   removing what no retained step refers to
    existing    a checkpoint that a command is given by its path
    step        a committed step, and a step without a batch that is to be made
    in_force    the last committed step, and the distribution of state after it
    settings    the settings of a session that decide what a query means
    queries     the queries that a checkpoint answers, since when, and removing one of them
    carry_over  state carried over from one plan to the next
    journal     the events of a checkpoint on disk
    survey      reading a checkpoint without disturbing the run that uses it

Nothing here knows Spark's API.
"""
