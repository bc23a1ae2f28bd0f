"""A strict reader of the HDF5 files that Keras writes: it locates the arrays without the HDF5 library.

From the bottom up: ``extents`` (the file's bytes, each claimed once), ``values`` (shapes and dtypes), ``headers`` (an
object's messages), ``attributes``, ``groups``, and ``structure``, which traverses the tree.
"""

from __future__ import annotations

from wdport.files.hdf5.structure import Hdf5Contents as Hdf5Contents
from wdport.files.hdf5.structure import Hdf5Dataset as Hdf5Dataset
from wdport.files.hdf5.structure import read_hdf5 as read_hdf5
