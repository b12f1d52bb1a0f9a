"""A query described in a file: read key by key (tables), checked (run_file), started (launch)."""
