"""Find the weights of a model's folder and its ``config.json``; merge the tensors of the shards of an index file.

Libraries such as transformers and diffusers save a model as a folder: ``config.json`` next to one weights file, or
next to an index and its shards. A pipeline is a folder of such folders; if only one of them has weights, that one is
read. Files outside the folder, also by links, are not read.

The index maps every tensor to a file next to it. A shard that is elsewhere, is missing, or has other tensors than the
index states is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from wdport.checkpoint.error_context import located
from wdport.checkpoint.experiment import checkpoint_in
from wdport.checkpoint.faults import COPY_AGAIN, Fault
from wdport.checkpoint.regular_file import inside
from wdport.checkpoint.source import Contents, Source, Span
from wdport.checkpoint.strict_json import require_shallow, strict_json
from wdport.checkpoint.tensor import TensorRef
from wdport.limits import MAX_CONFIG_BYTES, MAX_INDEX_BYTES, MAX_TENSORS

CONFIG: Final = "config.json"
PIPELINE: Final = "model_index.json"
INDEX: Final = ".index.json"
_STEMS: Final = ("model", "diffusion_pytorch_model", "pytorch_model")
"""Weights files in the order in which transformers or diffusers would choose."""

_ENDINGS: Final[tuple[tuple[str, str], ...]] = (
    (".safetensors", ".safetensors.index.json"),
    (".bin", ".bin.index.json"),
)
_SHARD: Final = re.compile(r"-\d+-of-\d+\.(safetensors|bin)$")
_WITHOUT: Final = "correct it, or give the path of the weights file, which is read without it"
_MOST_FILES: Final = 100_000
_MOST_PARTS: Final = 100
_SHOWN: Final = 4


@dataclass(frozen=True)
class Folder:
    """The files to read in a folder: the weights file or index, and the open ``config.json``, if any."""

    weights: Path
    source: Source | None
    config: dict[str, object] | None

    def close(self) -> None:
        """Close ``config.json``."""
        if self.source:
            self.source.close()


def open_folder(folder: Path) -> Folder:
    """Find the weights of ``folder`` and read its ``config.json``, which the caller closes."""
    names = sorted(os.listdir(folder))
    # A folder that has weights itself is read as a model, even if it also describes a pipeline.
    if PIPELINE in names and not _has_weights(names):
        folder = _component(folder, names)
        names = sorted(os.listdir(folder))
    experiment = None if _has_weights(names) else checkpoint_in(folder, names)
    weights = experiment or inside(folder, choose(names))
    if CONFIG not in names:
        return Folder(weights, None, None)
    path = inside(folder, CONFIG)
    with located(path):
        source = Source(path)
        try:
            return Folder(weights, source, _read_config(source, CONFIG))
        except BaseException:
            source.close()
            raise


def _has_weights(names: list[str]) -> bool:
    return any(name.endswith(ending) for name in names for endings in _ENDINGS for ending in endings)


def _component(folder: Path, names: list[str]) -> Path:
    """Return the only component of a pipeline that has weights."""
    parts = [name for name in names[:_MOST_PARTS] if os.path.isdir(folder / name)]
    components = [name for name in parts if _has_weights(os.listdir(inside(folder, name)))]
    if len(components) != 1:
        what = (
            f"is a pipeline with weights in {', '.join(components)}" if components else "is a pipeline without weights"
        )
        raise Fault(what, "give the path of one of its folders")
    return inside(folder, components[0])


def read_adjacent(weights: Path, name: str) -> dict[str, object]:
    """Read a JSON file such as ``scheduler_config.json`` next to the weights, or in the component ``scheduler`` of
    their pipeline; empty if there is none. Raises :class:`InputError`."""
    folder = weights if weights.is_dir() else weights.parent
    places = [folder / name]
    if (folder.parent / PIPELINE).is_file():
        places.append(folder.parent / name.partition("_")[0] / name)
    if (folder / PIPELINE).is_file():
        places.append(folder / name.partition("_")[0] / name)
    beside = next((place for place in places if place.is_file()), None)
    return {} if beside is None else read_config(beside, finite=False)


def choose(names: list[str]) -> str:
    """Return the weights file or index among these; safetensors files are preferred to ``.bin`` files."""
    if len(names) > _MOST_FILES:
        raise Fault(f"is a directory of {len(names)} files", "give the path of a checkpoint file")
    for endings in _ENDINGS:
        # A shard is not a model; its index is, and has the same ending plus .index.json.
        candidates = [name for name in names if name.endswith(endings) and not _SHARD.search(name)]
        if endings[0] == ".bin":  # optimizers and arguments of a training run also have this ending
            candidates = [name for name in candidates if name.split(".")[0] in _STEMS]
        if candidates:
            return _only_checkpoint(candidates)
    shards = next((name for name in names if _SHARD.search(name)), None)
    if shards is not None:
        raise Fault(f"has shards such as {shards!r} but no index", "also copy the .index.json")
    raise Fault(
        "is a directory without a checkpoint",
        "give the path of a checkpoint file",
    )


def read_config(path: Path, finite: bool = True) -> dict[str, object]:
    """Read a ``config.json`` as plain data; ``finite=False`` accepts NaN and infinity, which diffusers writes for its
    solvers. Raises :class:`InputError`."""
    with located(path):
        source = Source(path)
        try:
            return _read_config(source, path.name, finite)
        finally:
            source.close()


def _read_config(source: Source, name: str, finite: bool = True) -> dict[str, object]:
    if source.size > MAX_CONFIG_BYTES:
        raise Fault(f"has {source.size} bytes (at most {MAX_CONFIG_BYTES} are read)", _WITHOUT)
    try:
        config = strict_json(source.read(0, source.size), name, finite)
        require_shallow(config, name)
    except Fault as fault:
        # The weights can be read without the configuration, so a damaged one need not stop the user.
        fault.fix = _WITHOUT
        raise
    return config


def _only_checkpoint(candidates: list[str]) -> str:
    plain = [name for name in candidates if name.split(".")[0] in _STEMS and _is_plain(name)]
    # Among several, a plain name wins over variants such as model.fp16.safetensors.
    choice = plain if len(candidates) > 1 else candidates
    if len(choice) != 1:
        listing = ", ".join(candidates[:_SHOWN]) + (", ..." if len(candidates) > _SHOWN else "")
        raise Fault(f"is a directory of several checkpoints: {listing}", "give the path of one of them")
    return choice[0]


def _is_plain(name: str) -> bool:
    """Return whether the name has no variant, unlike ``model.fp16.safetensors``."""
    return any(name == f"{stem}{ending}" for stem in _STEMS for endings in _ENDINGS for ending in endings)


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
