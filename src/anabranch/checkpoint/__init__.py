"""What a run remembers: the directory, its steps, its plans, and the state that a step lists.

    folder/     the folder and the files in it: taking it, one writer, and what is removed when
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
