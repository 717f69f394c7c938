"""What outlives the server: the log, records of jobs, tokens, keys, functions."""
