"""A strict reader of the HDF5 files that Keras writes: it locates the arrays without the HDF5 library.

From the bottom up: ``headers`` (the file's bytes, each claimed once, and an object's messages with shapes and dtypes),
``groups`` (links), and ``structure`` (attributes, and the traversal of the tree).
"""
