"""A safetensors index file goes in; the tensors of all its shards come out as one.

The index maps every tensor to a file beside it. A shard that lies elsewhere, is missing, or holds other
tensors than the index says is refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from wdport.checkpoint.contents import Contents
from wdport.checkpoint.faults import COPY_AGAIN, Fault, located
from wdport.checkpoint.safetensors import read_safetensors, strict_json
from wdport.checkpoint.source import Source
from wdport.checkpoint.span import Span
from wdport.limits import MAX_HEADER_BYTES

MAX_SHARDS: Final = 1000
"""Each shard keeps a file open, and 1024 is the common limit on those; the largest public model has 200."""


def read_sharded(index: Source) -> Contents:
    """Parse the index and the header of every shard; the opened shards are closed again on failure."""
    weight_map = _weight_map(index)
    expected: dict[str, set[str]] = {}
    for name, place in weight_map.items():
        expected.setdefault(place, set()).add(name)
    if len(expected) > MAX_SHARDS:
        raise Fault(f"names {len(expected)} shards (at most {MAX_SHARDS} are read)", "merge the shards")
    tensors: dict[object, object] = {}
    spans: dict[str, Span] = {}
    metadata: dict[str, object] = {}
    sources = [index]
    try:
        for file_name, names in expected.items():
            path = _beside(index.path, file_name)
            with located(path):
                sources.append(Source(path))
                shard = read_safetensors(sources[-1])
                _check_shard(weight_map, names, set(shard.spans))
            spans |= shard.spans
            metadata |= shard.metadata
            tensors |= shard.tree if isinstance(shard.tree, dict) else {}
    except BaseException:
        for source in sources[1:]:
            source.close()
        raise
    tree = {name: tensors[name] for name in weight_map}
    return Contents("safetensors-sharded", tree, spans, sources, metadata)


def _weight_map(index: Source) -> dict[str, str]:
    if index.size > MAX_HEADER_BYTES:
        raise Fault(f"an index of {index.size} bytes (at most {MAX_HEADER_BYTES} are read)", COPY_AGAIN)
    entries = strict_json(index.read(0, index.size), "index").get("weight_map")
    if not isinstance(entries, dict) or not entries:
        raise Fault("the index has no weight_map", COPY_AGAIN)
    weight_map: dict[str, str] = {}
    for name, shard in entries.items():
        if not isinstance(shard, str):
            raise Fault("its shard in the index is not a file name", COPY_AGAIN, name)
        weight_map[name] = shard
    return weight_map


def _beside(index: Path, name: str) -> Path:
    """The path of shard ``name``, which has to lie in the index's own folder, links followed."""
    path = index.parent / name
    plain = name not in ("", ".", "..") and not {"/", "\\", "\0"} & set(name)
    if not plain or os.path.dirname(os.path.realpath(path)) != os.path.realpath(index.parent):
        raise Fault(f"shard {name!r} lies outside the folder of the index", "put all shards beside the index")
    return path


def _check_shard(weight_map: dict[str, str], expected: set[str], held: set[str]) -> None:
    for name in sorted(held - expected):
        other = weight_map.get(name)
        place = f"and in {other}" if other else "but not in the index"
        raise Fault(f"stands in this shard {place}", COPY_AGAIN, name)
    for name in sorted(expected - held):
        raise Fault("is missing from the shard that the index names", COPY_AGAIN, name)
