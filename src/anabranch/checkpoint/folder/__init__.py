"""The folder that a checkpoint is, and the files in it.

directory  the checkpoint directory: taking it, its steps, and what it is made of
identity   which folder counts as a checkpoint, and which engine may resume it
lock       one driver at a time
epochs     only the newest run may commit
numbered   documents that are named by numbers
plans      the plans of a checkpoint, and Spark's logs under each
offsets    Spark's offset logs under a new plan
records    documents beside the steps: an announced step, what the run is made of, costs of join orders
retention  removing what no retained step refers to
"""
