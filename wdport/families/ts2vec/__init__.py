"""TS2Vec's encoder (arXiv 2106.10466): series to a vector per step, and to one per series."""
