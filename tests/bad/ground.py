"""The good files that bad ones are made from: a checkpoint, its three converted forms, a recording, a table."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch

import wdport
from tests.families.test_custom import HEAD, TABLES
from tests.make import SETTINGS, SMALL, make_state, record_small, save

NAMES = ("good.ckpt", "good.keras", "good.weights.h5", "good.safetensors", "good.run.npz", "own.yaml", "good.npy")
CONVERTED = ("good.keras", "good.weights.h5", "good.safetensors")


@cache
def ground() -> Path:
    """A folder with the files of :data:`NAMES`, made once for a process; manifests lie beside converted files."""
    folder = Path(mkdtemp(prefix="wdport-ground-"))
    checkpoint = save(folder / "good.ckpt", make_state())
    for name in CONVERTED:
        wdport.convert(checkpoint, folder / name, values=SETTINGS)
    (folder / "own.yaml").write_text(HEAD.format(torch="lstm", keras="lstm") + TABLES["lstm"])
    np.save(folder / "good.npy", np.arange(72.0).reshape(24, 3) % 7)
    return folder


@cache
def recording() -> Path:
    """The recording of the checkpoint, made when it is first asked for."""
    torch.set_num_threads(1)
    path = ground() / "good.run.npz"
    record_small("tests.user_model:small", ground() / "good.ckpt", path, SMALL)
    return path
