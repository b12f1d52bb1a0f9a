"""A survey of a checkpoint: its contents and its damage, read without disturbing the run that uses it.

survey       takes a survey: looks until the run does not move on during the look
look         one look: the documents of the checkpoint, and the damage so far
state_files  checks the state files, and counts rows and bytes by partition group
summaries    inputs, sorted runs and spilled state, summed up
"""
