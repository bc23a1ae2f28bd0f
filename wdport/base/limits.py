"""All limits, each with its reason."""

from __future__ import annotations

from typing import Final

MAX_MESSAGE_CHARS: Final = 240
"""An error stays one line on a wide terminal and in a CI annotation."""

MAX_NAME_CHARS: Final = 120
"""A file or tensor name inside a message; the longest real tensor name seen has 76 characters."""

MAX_PICKLE_BYTES: Final = 64 << 20
"""data.pkl of a checkpoint with optimizer state and 10,000 tensors has about 3 MB."""

MAX_OPCODES: Final = 5_000_000
"""A checkpoint of 63 million parameters with AdamW state has about 60,000; 5 M bounds the time."""

MAX_DEPTH: Final = 100
"""Nesting of containers; a Lightning checkpoint has 8."""

MAX_TENSORS: Final = 200_000
"""Tensors in one file, or of one index and its shards; the largest public models have about 100,000."""

MAX_MODULE_ENTRIES: Final = 200_000
"""Parameters, buffers and submodules of a whole pickled model, counted at every occurrence: a shared one may occur
billions of times. The largest public models have about 100,000."""

MAX_UNREAD: Final = 200
"""Lines about skipped content; further lines are only counted."""

MAX_CONFIG_BYTES: Final = 8 << 20
"""``config.json`` of a model's folder; one with the names of 21,000 classes has 1 MB."""

MAX_RANK: Final = 32
"""NumPy 1.x's limit on axes, far more than any layer's weight has."""

MAX_MEMBERS: Final = 2_000_000
"""Members of a zip archive: one per storage and a handful of records."""

MAX_HEADER_BYTES: Final = 100_000_000
"""The safetensors format's own cap on its JSON header."""

MAX_ENTRY_BYTES: Final = 4096
"""One tensor's entry in that header; 32 axes of 19 digits take 700."""

MAX_METADATA: Final = 10_000
"""Entries of a safetensors file's ``__metadata__``; training programs write about 100."""

MAX_INDEX_BYTES: Final = 32 << 20
"""An index of shards; one of 92,000 tensors has 9 MB."""

MAX_JSON_MARKS: Final = 500_000
"""Brackets, braces, commas and colons in a JSON document: each is a value of 60 to 230 bytes of memory at most, where
the document spends two bytes on it. Names of 21,000 classes, in both directions, take 84,000."""

MAX_NUMBER_CHARS: Final = 100
"""A number in a configuration; a float64 takes at most 24 characters, and integers of a million digits take minutes."""

MAX_TABLE_BYTES: Final = 1 << 20
"""A mapping table or configuration file; the longest shipped table has about 6 kB."""

MAX_INCLUDES: Final = 50
"""Files that a mapping table includes, one through another; the shipped ones include one."""

MAX_TABLE_NODES: Final = 50_000
"""Values and ends of groups in a YAML document; the largest shipped table has about 1,500."""

MAX_TABLE_DEPTH: Final = 20
"""Nesting of a YAML document; the public training configuration has 3."""

MAX_MANIFEST_BYTES: Final = 16 << 20
"""A converted file's manifest: about 400 bytes for each of up to 40,000 tensors, and lines on what was not read."""

MAX_KEPT_BYTES: Final = 64 << 20
"""A file of a checkpoint's folder that a converted file keeps; a tokenizer of 128,000 words has 17 MB."""

MAX_MANIFEST_MARKS: Final = 1_200_000
"""Brackets, braces, commas and colons in it, see :data:`MAX_JSON_MARKS`: about 30 for each tensor."""

MAX_METADATA_BYTES: Final = MAX_MANIFEST_BYTES + (8 << 20)
"""All metadata of a safetensors file; the manifest, with its quotes escaped, is the largest known."""

MAX_HDF5_OBJECTS: Final = 500_000
"""Groups and arrays of a Keras file; a model of 100,000 variables, the largest known, has about three for each."""

MAX_HDF5_PATH: Final = 1_000
"""Characters of the path of an array in such a file; real ones have at most about 150."""

MAX_ATTRIBUTE_BYTES: Final = 1 << 16
"""An attribute in a Keras file: the name of a layer, or of a dtype."""

MAX_EMPTY_SHAPE: Final = 1 << 31
"""Bytes that an array with a zero in its shape would have if the zero were a one; NumPy and models can make such
arrays."""

MAX_GROUPS: Final = 64
"""Levels of a decomposition, plus one: 2^63 values are halved 63 times."""

MAX_STEPS: Final = 1 << 24
"""Time steps of one window, and hence values of one level; the longest windows in public use have a few thousand."""

MAX_VIDEO_BYTES: Final = 1 << 34
"""Bytes of the frames of a video; an hour of 480 x 320 pixels at 10 frames per second has 16.6 GB."""

MAX_FEATURES: Final = 100_000
"""Features of a series; the widest public set (traffic) has 862."""

MAX_FEATURE_NAME_CHARS: Final = 100
"""Characters of a feature's name; a table with a longer column name is refused, and public sets stay below 40."""

MAX_FEATURE_NAMES_CHARS: Final = 1 << 20
"""Characters of the names of all features: at most 12 MB in a manifest, where JSON escapes them."""

MAX_WIDTH: Final = 1 << 16
"""Width of a layer; the widest public transformer has 53,248."""

MAX_LAYERS: Final = 1000
"""Blocks in a stack; the deepest public transformers have about 130."""

MAX_VARIABLES: Final = MAX_TENSORS
"""Variables of a model, counted before any is named."""

MAX_VALUES: Final = 1 << 34
"""Values of all variables of a model: 64 GiB in float32, which the largest GPUs just hold; the released
model has 63 million."""

MAX_TEXT_BYTES: Final = 1 << 30
"""Bytes of a series as text, which takes about ten times as much memory; the largest public sets have 0.1 GB."""

MAX_INFLATION: Final = 200
"""Compression ratio of an array: real series reach about 20, zeros 1,000."""

MIN_INFLATED_BYTES: Final = 32 << 20
"""Bytes that any compressed array may take."""

MAX_ARCHIVE_BYTES: Final = 64 << 30
"""Bytes of a tar archive, uncompressed, and of each of its members."""

MAX_ARCHIVE_MEMBERS: Final = 10_000
"""Members of a tar archive; an experiment has about five."""

MAX_ARCHIVE_ARRAYS: Final = 10_000
"""Arrays in an ``.npz`` or ``.mat`` file."""

MAX_POLICY_BYTES: Final = 1 << 18
"""Bytes of a policy; a waiver takes about 60."""

MAX_BASELINE_BYTES: Final = 16 << 20
"""A baseline of the released model has 60 kB."""

MAX_RUN_BYTES: Final = 1 << 20
"""``run.json`` of a sampling run that resumes; one has about 700 bytes."""

MAX_RECORDED: Final = 300_000
"""Arrays in a recording; one of a model of 200 variables has about 2,000."""

MAX_RECORDED_BYTES: Final = 64 << 20
"""The index of a recording; that of the same model has 0.6 MB."""

MAX_ITEM_BYTES: Final = 64
"""Bytes of memory for each value in it: in all, at most the file's size plus 64 MiB. That file has 229 bytes for
each."""

MAX_SEED: Final = (1 << 31) - 1
"""Of the inputs of a comparison."""

MAX_CASES: Final = 990
"""Additional inputs of a comparison; with more, their seeds would be those of the next battery."""

MAX_LEVELS: Final = 16
"""Resolutions of a U-Net, each half the size of the one before; the public ones have at most 7."""

MAX_RESIDUAL: Final = 200
"""Residual blocks on one of a U-Net's two paths; the deepest public ones have about 40."""

MAX_IMAGE: Final = 1 << 15
"""Height or width of an image; the largest that public diffusion models make is 4096."""


def require_model_size(variables: int, values: int, about: str = "") -> None:
    """Raise ``ValueError`` if a model of so many variables and values, ``about`` so many, exceeds the limits."""
    for count, limit, word in ((variables, MAX_VARIABLES, "variables"), (values, MAX_VALUES, "values")):
        if count > limit:
            raise ValueError(f"the sizes are those of a model of {about}{count} {word}, at most {limit} are supported")
