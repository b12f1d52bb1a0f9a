"""Changes of a run while it goes on.

checks             refuses changes that a run cannot make while it goes on
host               a run as its migrations and changes see it
queries            adds queries and removes them
replacement        replaces a query by another one that goes on with its state
migration          the handle of a migration
migrator           begins, ends and cancels migrations
policy_migrations  migrations that policies decide on
reallocator        operators on other processors, as a user or a policy wants it
plans              the orders in which joins could run, with their costs
"""
