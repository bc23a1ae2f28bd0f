"""TS2Vec's encoder (arXiv 2106.10466): maps a series to a vector per step, and to one per series."""
