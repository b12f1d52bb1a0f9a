"""Plans of queries: pure descriptions of what to compute, free of Spark and of storage.

query        a bound query: logical, and with its joins in one order
names        which names in an expression are columns
texts        columns of expressions replaced by others
arrangement  which streams meet in which operator, given the equalities between them
join_keys    join keys out of equalities
join_order   a logical query arranged for one shape of its joins
shape_text   a shape of joins as text
orders/      what orders of joins cost, the best ones, and what it costs to change to them
network      several queries as one network of operators with ports
sharing/     which operators and which stored rows of different queries are the same
assembly     queries put together into one network
placement    where operators are
allocation   where operators are, and which run fused, as a run remembers it
routing      which processors get a row, by port and partition group
rounds       operators put into rounds, with an exchange of rows before each
watermark    what is late, dead and settled, as arithmetic on event time
explain, svg the plan for people
"""
