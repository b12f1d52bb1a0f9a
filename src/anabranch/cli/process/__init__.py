"""The command as a process.

deferred  commands that are imported when they are used
embedded  a quiet Spark that ends with the command
signals   Ctrl-C and its kin as one exception
failures  exceptions as one line and an exit code
"""
