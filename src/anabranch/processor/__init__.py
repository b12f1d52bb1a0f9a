"""The work of one processor in one round of a step, which depends on its manifest and the arriving rows alone.

    tasks          what the driver sends: a processor's plan, which stays, and its task in a step
    attempt        one attempt at one round, from arriving rows to the report
    context        the attempt as one value that its functions take
    long_rows      marks in place of rows that are too long to come
    parked         reports of earlier rounds of the same processor, with the rows that they left
    arrivals       bad rows, late rows, and the rest by port
    json_rows      rows as JSON, for those that are set aside
    deltas         the rows that come to ports, before they are part of the state
    operators/     what one operator does in a step, in order
    destinations   results to outlets, to the exchange, or to ports on the same processor
    outlets        results that are written or counted
    run_files      the run files that an attempt reads and writes
    segments       parts of segments: some groups, some columns

Nothing here knows Spark.
"""
