"""Small networks as people write them, each in the manner of the repositories that made its kind known.

Their code is what ``wdport port`` reads: it has no types, and it is not written to be easy to port.
"""
