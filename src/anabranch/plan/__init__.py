"""Plans of queries: pure descriptions of what to compute, free of Spark and of storage.

query             a bound query: logical, and with its joins in one order
names             which names in an expression are columns
texts             columns of expressions replaced by others
arrangement       which streams meet in which operator, given the equalities between them
join_keys         join keys out of equalities
join_order        a logical query arranged for one shape of its joins
shape_text        a shape of joins as text
join_estimates    how many rows joins of some inputs have and make
join_sample       sizes of joins, counted in samples of their inputs
order_cost        what one order of joins costs
join_orders       the best orders of joins
migration_cost    the equations of paper 3 for changes of order
migration_choice  what a change of order will cost by each strategy, and which one to take
plan_cost         orders of joins beside the one in force, with what each costs
network           several queries as one network of operators with ports
query_change      what becomes of the state when a query is replaced, as a table
leaf_state        which rows of a stream a port has, and what another one lacks there
port_state        which rows a port stores, whatever the tree of operators
leaf_ports        where in a network the rows of a query's inputs are
identity          which operators of different queries are the same
assembly          queries put together into one network
placement         where operators are
routing           which processors get a row, by port and partition group
rounds            operators put into rounds, with an exchange of rows before each
watermark         what is late, dead and settled, as arithmetic on event time
explain,          svg the plan for people
"""
