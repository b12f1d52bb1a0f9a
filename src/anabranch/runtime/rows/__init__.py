"""From a registered stream to clean, typed rows, in Spark expressions; and what to say of rows that fail.

derived    the rows of a source: a registered stream, or what a sub-query in FROM makes of one
fallible   expressions that can fail on a row, evaluated so that only the row is lost
notes      the note that a bad row carries until a processor decides about it
carried    the form in which a column travels where Spark cannot hand its own type to Python
exactness  whether a cast between two types keeps different values different
keys       the common type of a join key, its canonical form, and whether its hash determines it
diagnosis  what to tell a user when Spark fails because of the data
"""
