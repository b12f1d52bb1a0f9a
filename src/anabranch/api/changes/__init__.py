"""What changes a run while it goes on.

checks             what a change has to keep to
host               a run as its migrations and changes see it
queries            adds queries and removes them
replacement        another query in the place of one, with its state
migration          the handle of a migration
migrator           begins, ends and cancels migrations
policy_migrations  migrations that policies decide on
reallocator        operators on other processors, as a user or a policy wants it
plans              the orders in which joins could run, with what they cost
"""
