"""A strict reader of the HDF5 files that Keras writes: it locates the arrays without the HDF5 library.

From the bottom up: ``headers`` (the file's bytes, each claimed once, and an object's messages with shapes and dtypes),
``groups`` (links), and ``structure`` (attributes, and the traversal of the tree).
"""

from __future__ import annotations

from wdport.files.hdf5.structure import Hdf5Contents as Hdf5Contents
from wdport.files.hdf5.structure import Hdf5Dataset as Hdf5Dataset
from wdport.files.hdf5.structure import read_hdf5 as read_hdf5
