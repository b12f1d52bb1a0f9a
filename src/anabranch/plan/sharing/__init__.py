"""Which operators, and which stored rows, of different queries and orders are the same, so that state is kept.

port_state    which rows a port stores, whatever the tree of operators
identity      which operators of different queries are the same
leaf_ports    where in a network the rows of a query's inputs are
leaf_state    which rows of a stream a port has, and what another one lacks there
query_change  what becomes of the state when a query is replaced, as a table
"""
