"""The command as a process: commands imported when used, an embedded Spark, signals, exit codes."""
