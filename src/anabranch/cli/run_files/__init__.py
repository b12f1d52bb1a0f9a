"""A query described in a file.

tables    reads a file key by key, with errors that name the key
run_file  the description as a value, checked before Spark is started
launch    makes the query and starts it
"""
