"""What a run remembers: the directory, its steps, its plans, and the state that a step lists.

    directory   the checkpoint directory: identity, lock, epochs, plans, steps, retention
    existing    a checkpoint that a command is given by its path
    step        a committed step, and a step without a batch that is to be made
    in_force    the last committed step, and the distribution of state after it
    queries     the queries that a checkpoint answers, and removing one of them
    carry_over  the document of a plan, and carrying state over to the next plan
    offsets     Spark's offset logs under a new plan
    survey      reading a checkpoint without disturbing the run that uses it

Nothing here knows Spark's API.
"""
