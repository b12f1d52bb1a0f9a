"""One engine, in a process of its own, that runs one input; measured from outside.

job        the input of one run (`Job`) and its result (`Outcome`)
child      runs a job in a child process, and leaves nothing of it behind
memory     the peak memory of that process and its children
contender  the child process itself
queries    the query of a job in the words of each engine
sliding    the peer of `bench groupby`, written by hand
"""
