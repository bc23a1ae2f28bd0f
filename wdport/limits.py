"""Every cap in one place, each with its reason."""

from __future__ import annotations

from typing import Final

MAX_MESSAGE_CHARS: Final = 240
"""An error stays one line on a wide terminal and in a CI annotation."""

MAX_NAME_CHARS: Final = 120
"""A file or tensor name inside a message; the longest real tensor name seen has 76 characters."""

MAX_PICKLE_BYTES: Final = 64 << 20
"""data.pkl of a checkpoint with optimiser state and 10,000 tensors has about 3 MB."""

MAX_OPCODES: Final = 5_000_000
"""A checkpoint of 63 million parameters with AdamW state has about 60,000; 5 M bounds the time."""

MAX_DEPTH: Final = 100
"""Nesting of containers; a Lightning checkpoint has 8."""

MAX_TENSORS: Final = 1_000_000
"""Tensors in one file."""

MAX_MODULE_ENTRIES: Final = 200_000
"""Parameters, buffers and submodules of a whole pickled model, each counted where it stands: a shared one may stand in
billions of places. The largest public models have about 100,000."""

MAX_UNREAD: Final = 200
"""Lines on what was not read; what follows is counted."""

MAX_CONFIG_BYTES: Final = 8 << 20
"""``config.json`` of a model's folder; one with the names of 21,000 classes has 1 MB."""

MAX_RANK: Final = 32
"""numpy 1.x's limit on axes, and far above any layer's weight."""

MAX_MEMBERS: Final = 2_000_000
"""Members of a zip archive: one per storage and a handful of records."""

MAX_HEADER_BYTES: Final = 100_000_000
"""The safetensors format's own cap on its JSON header."""

MAX_TABLE_BYTES: Final = 1 << 20
"""A mapping table or configuration file; the longest shipped table has about 6 kB."""

MAX_TABLE_DEPTH: Final = 20
"""Nesting of a YAML document; the public training configuration has 3."""

MAX_MANIFEST_BYTES: Final = 64 << 20
"""A converted file's manifest: about 400 bytes for each of up to 150,000 tensors, and lines on what was not read."""

MAX_HDF5_OBJECTS: Final = 500_000
"""Groups and arrays of a Keras file; a model of 100,000 variables, the largest known, has about three for each."""

MAX_HDF5_PATH: Final = 1_000
"""Characters of the path of an array in such a file; real ones have at most about 150."""

MAX_ATTRIBUTE_BYTES: Final = 1 << 16
"""An attribute in a Keras file: the name of a layer, or of a dtype."""

MAX_CONFIG_VALUES: Final = 500_000
"""Values in a JSON member of a ``.keras`` archive, a list of which takes a hundred times its text; the configuration of
600 layers has about 30,000."""

MAX_EMPTY_SHAPE: Final = 1 << 31
"""Bytes that an array with a zero in its shape would have with a one there: numpy can make it, and so can a model."""

MAX_RUN_BYTES: Final = 1 << 20
"""``run.json`` of a sampling run that goes on; one has about 700 bytes."""
