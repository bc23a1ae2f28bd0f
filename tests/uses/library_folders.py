"""Folders of small models, as the library saves them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

Fields = dict[str, Any]
Tensors = dict[str, np.ndarray]


def saver(weights: str, tensors_of: Callable[[Fields], Tensors], **stated: object) -> Callable[..., Path]:
    """A function that writes the folder of a model with these fields and, unless they are given, random tensors.

    ``weights`` is the name of their file; ``config.json`` has ``stated`` before the fields, and more after them.
    """

    def save(folder: Path, fields: Fields, tensors: Tensors | None = None, **more: object) -> Path:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({**stated, **fields, **more}))
        save_file(tensors_of(fields) if tensors is None else tensors, folder / weights)
        return folder

    return save
