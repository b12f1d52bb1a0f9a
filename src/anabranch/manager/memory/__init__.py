"""Memory: how much of it processors have, what it is used for, and what is owed because it was too little.

budgets     how much memory each processor may use
memory_use  how much of that is used for what, and when it is too little
debt        the results that spilling has postponed
manager_use what the manager itself takes
"""
