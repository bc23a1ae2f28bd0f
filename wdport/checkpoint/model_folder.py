"""Find the weights of a model's folder and its ``config.json``.

Libraries such as transformers and diffusers save a model as a folder: ``config.json`` next to one weights file, or
next to an index and its shards. A pipeline is a folder of such folders; if only one of them has weights, that one is
read. Files outside the folder, also by links, are not read.
"""

from __future__ import annotations

import os
import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wdport.base.limits import MAX_CONFIG_BYTES
from wdport.checkpoint.error_context import located
from wdport.checkpoint.experiment import checkpoint_in
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.foreign import refuse_adapter, refuse_folder
from wdport.checkpoint.regular_file import inside
from wdport.checkpoint.source import Source
from wdport.checkpoint.strict_json import require_shallow, strict_json

CONFIG: Final = "config.json"
PIPELINE: Final = "model_index.json"
INDEX: Final = ".index.json"
DISTRIBUTED: Final = ".metadata"
"""The index of a folder of ``torch.distributed.checkpoint``."""
_STEMS: Final = ("model", "diffusion_pytorch_model", "pytorch_model")
"""Weights files in the order in which transformers or diffusers would choose."""

_ENDINGS: Final[tuple[tuple[str, str], ...]] = (
    (".safetensors", ".safetensors.index.json"),
    (".bin", ".bin.index.json"),
)
_SHARD: Final = re.compile(r"-\d+-of-\d+\.(safetensors|bin)$")
_FIX: Final = "correct it, or move it away from the weights"
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
    refuse_adapter(names)
    # A folder that has weights itself is read as a model, even if it also describes a pipeline.
    if PIPELINE in names and not _has_weights(names):
        folder = _component(folder, names)
        names = sorted(os.listdir(folder))
    divided = DISTRIBUTED in names and any(name.endswith(".distcp") for name in names)
    if not (divided or _has_weights(names)):
        refuse_folder(names)
    experiment = None if _has_weights(names) or divided else checkpoint_in(folder, names)
    weights = inside(folder, DISTRIBUTED) if divided else experiment or inside(folder, choose(names))
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
    refuse_folder(names)
    raise Fault("is a directory without a checkpoint", "give the path of a checkpoint file")


def read_config(path: Path, finite: bool = True) -> dict[str, object]:
    """Read a ``config.json`` as plain data; ``finite=False`` accepts NaN and infinity, which diffusers writes for its
    solvers. Raises :class:`InputError`."""
    with located(path), closing(Source(path)) as source:
        return _read_config(source, path.name, finite)


def _read_config(source: Source, name: str, finite: bool = True) -> dict[str, object]:
    if source.size > MAX_CONFIG_BYTES:
        raise Fault(f"has {source.size} bytes (at most {MAX_CONFIG_BYTES} are read)", _FIX)
    try:
        config = strict_json(source.read(0, source.size), name, finite)
        require_shallow(config, name)
    except Fault as fault:
        # The weights can be read without the configuration, so a damaged one need not stop the user.
        fault.fix = _FIX
        raise
    return config


def _only_checkpoint(candidates: list[str]) -> str:
    # Among several, a plain name wins over variants such as model.fp16.safetensors.
    plain = [f"{stem}{ending}" for stem in _STEMS for endings in _ENDINGS for ending in endings]
    plain = [name for name in candidates if name in plain]
    choice = plain if len(candidates) > 1 else candidates
    if len(choice) != 1:
        listing = ", ".join(candidates[:_SHOWN]) + (", ..." if len(candidates) > _SHOWN else "")
        raise Fault(f"is a directory of several checkpoints: {listing}", "give the path of one of them")
    return choice[0]
