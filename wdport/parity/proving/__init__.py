"""What `port` and `map suggest` return, and its proof: a suggested table or a written port, verified with random
weights."""
