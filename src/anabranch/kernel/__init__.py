"""How it is computed: Arrow in, Arrow out, NumPy in between; no Spark, no storage, no loop per row."""
