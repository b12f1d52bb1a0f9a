"""Arrow and NumPy arrays below the level of runs.

order        the order of rows in a run: by hash, then by time
hash_index   where to look for a hash among ascending hashes
row_bytes    rows bounded by bytes
mapped_file  a file mapped into memory
"""
