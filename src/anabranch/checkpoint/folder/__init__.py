"""The folder of a checkpoint, and the files in it.

directory  the checkpoint itself: taking it, its identity, its plans and steps
identity   which folder counts as a checkpoint, and which engine may resume it
lock       one driver at a time
epochs     only the newest run may commit
numbered   documents that are named by numbers
plans      the plans of a checkpoint, and Spark's logs under each
offsets    Spark's offset logs under a new plan
records    documents beside the steps: an announced step, the record of the run, costs of join orders
retention  removes the files that no retained step refers to
"""
