"""Read a checkpoint in shards: merge the tensors that its index file lists.

The index maps every tensor to a file next to it. A shard that is elsewhere, is missing, or has other tensors than the
index states is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from wdport.base.limits import MAX_INDEX_BYTES, MAX_TENSORS
from wdport.checkpoint.error_context import located
from wdport.checkpoint.faults import COPY_AGAIN, Fault
from wdport.checkpoint.regular_file import inside
from wdport.checkpoint.source import Contents, Source, Span
from wdport.checkpoint.strict_json import strict_json
from wdport.checkpoint.tensor import TensorRef

MAX_SHARDS: Final = 1000
"""Each shard keeps a file open, and 1024 is the common limit on those; the largest public model has 200."""

_SAFETENSORS: Final = "safetensors"


def read_sharded(index: Source, parse: Callable[[Source], Contents]) -> Contents:
    """Parse the index and every shard with ``parse``; opened shards are closed on failure."""
    weight_map = _weight_map(index)
    expected: dict[str, set[str]] = {}
    for name, place in weight_map.items():
        expected.setdefault(place, set()).add(name)
    if len(expected) > MAX_SHARDS:
        raise Fault(f"names {len(expected)} shards (at most {MAX_SHARDS} are read)", "merge the shards")
    tensors: dict[str, TensorRef] = {}
    spans: dict[str, Span] = {}
    metadata: dict[str, object] = {}
    formats: set[str] = set()
    sources = [index]
    try:
        for number, (file_name, names) in enumerate(expected.items(), 1):
            path = inside(index.path.parent, file_name)
            with located(path):
                sources.append(Source(path))
                shard = parse(sources[-1])
                # torch numbers the storages of every file from 0, so two shards use the same keys.
                held = _renumbered(shard, number)
                _check_shard(weight_map, names, set(held))
            spans |= {f"{number}/{key}": span for key, span in shard.spans.items()}
            metadata |= shard.metadata
            formats.add(shard.format)
            tensors |= held
    except BaseException:
        # The index, the first one, belongs to the caller.
        for source in sources[1:]:
            source.close()
        raise
    tree = {name: tensors[name] for name in weight_map}
    name = "safetensors-sharded" if formats == {_SAFETENSORS} else "torch-sharded"
    return Contents(name, tree, spans, sources, metadata)


def _renumbered(shard: Contents, number: int) -> dict[str, TensorRef]:
    """Return the tensors of a shard, with storage keys that are distinct from those of other shards."""
    tensors: dict[str, TensorRef] = {}
    for name, leaf in shard.tree.items() if isinstance(shard.tree, dict) else ():
        if not isinstance(name, str) or not isinstance(leaf, TensorRef):
            raise Fault("its entry in this shard is not a tensor", COPY_AGAIN, str(name))
        tensors[name] = replace(leaf, storage=replace(leaf.storage, key=f"{number}/{leaf.storage.key}"))
    return tensors


def _weight_map(index: Source) -> dict[str, str]:
    if index.size > MAX_INDEX_BYTES:
        raise Fault(f"an index of {index.size} bytes (at most {MAX_INDEX_BYTES} are read)", COPY_AGAIN)
    entries = strict_json(index.read(0, index.size), "index").get("weight_map")
    if not isinstance(entries, dict) or not entries:
        raise Fault("the index has no weight_map", COPY_AGAIN)
    if len(entries) > MAX_TENSORS:
        raise Fault(f"the index names {len(entries)} tensors (at most {MAX_TENSORS} are read)", COPY_AGAIN)
    weight_map: dict[str, str] = {}
    for name, shard in entries.items():
        if not isinstance(shard, str):
            raise Fault("its shard in the index is not a file name", COPY_AGAIN, name)
        weight_map[name] = shard
    return weight_map


def _check_shard(weight_map: dict[str, str], expected: set[str], held: set[str]) -> None:
    for name in sorted(held - expected):
        other = weight_map.get(name)
        place = f"and in {other}" if other else "but not in the index"
        raise Fault(f"is in this shard {place}", COPY_AGAIN, name)
    for name in sorted(expected - held):
        raise Fault("is missing from the shard that the index names", COPY_AGAIN, name)
