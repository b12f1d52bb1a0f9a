"""What one processor does in one round of a step: a pure function of its manifest and the arriving rows.

    tasks      what a processor is told: its plan, which stays, and its task in a step
    attempt    one attempt at one round, from arriving rows to the report
    arrivals   bad rows, late rows, and the rest by port
    json_rows  rows as JSON, for those that are set aside
    long_rows  marks in place of rows that are too long to come
    parked     what earlier rounds of the same processor left for this one
    answering  up to when a grouping answers each partition group
    run_files  the run files that an attempt reads and writes
    segments   parts of segments: some groups, some columns
    outlets    results on their way out

Nothing here knows Spark.
"""
