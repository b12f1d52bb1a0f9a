"""The checkpoint of a run: its folder, its steps, its plans, and the state that a step lists.

    folder/     the folder and the files in it: taking it, one writer, removal of files
    existing    the checkpoint at the path that a command gets
    step        a committed step, and the kinds of steps that are made
    in_force    the last committed step, and the distribution of state after it
    settings    the settings of a session that decide the meaning of a query
    queries     the queries that a checkpoint answers, since when, and removing one of them
    carry_over  state carried over from one plan to the next
    journal     the events of a checkpoint on disk
    survey/     reads a checkpoint without disturbing the run that uses it

Nothing here knows Spark's API.
"""
