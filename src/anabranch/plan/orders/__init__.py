"""Orders of joins: what each one costs, which are the best, and what it costs to change from one to another.

join_estimates    how many rows joins of some inputs have and make
join_sample       sizes of joins, counted in samples of their inputs
order_cost        what one order of joins costs
join_orders       the best orders of joins
migration_cost    the equations of paper 3 for changes of order
migration_choice  what a change of order will cost by each strategy, and which one to take
plan_cost         orders of joins beside the one in force, with what each costs
"""
