"""The folder in which wrong commands are typed: good files, and files of other kinds that a user may take for them."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path

import h5py
import numpy as np
import torch
from safetensors.torch import save_file

from tests.bad.ground import ground

BERT = [f"bert.encoder.layer.{layer}.attention.self.{name}.weight" for layer in (0, 1) for name in ("query", "key")]

TEXTS = {
    "nomodel.yaml": "training:\n  epochs: 3\n",
    "typo.yaml": "model:\n  num_head: 2\n",
    "flat.yaml": "num_heads: 2\n",
    "broken.yaml": "model: [1, 2\n",
    "tabel.yaml": "format: 2\nlayerz: []\n",
    "notes.txt": "hello\n",
    "policy.toml": "[bound]\nfloat32 = 8\n",
    "my model.ckpt": "",
    "-dash.ckpt": "",
}


def lay_out(folder: Path) -> None:
    """Make all of them."""
    for file in ground().iterdir():
        if file.name != "good.run.npz":  # which is there only if a test that ran before has made it
            shutil.copy(file, folder / file.name)
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    (folder / "folder").mkdir()
    torch.save({name: torch.zeros(4, 4) for name in BERT}, folder / "pytorch_model.bin")
    save_file({"a.weight": torch.zeros(2, 3)}, folder / "other.safetensors")
    (folder / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(99))
    for name in ("data.h5", "other.weights.h5"):
        with h5py.File(folder / name, "w") as file:
            file["x"] = np.zeros(3)
    _keras(folder / "other.keras", {"class_name": "Functional", "config": {"name": "classifier"}})
    _keras(folder / "nameless.keras", {"config": {}})
    with zipfile.ZipFile(folder / "good.stablehlo", "w") as archive:
        for name in ("facts.json", "denoiser.program", "weights.bin"):
            archive.writestr(zipfile.ZipInfo(name), b"{}")


def _keras(path: Path, document: dict[str, object]) -> None:
    """A model that Keras saved."""
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        file.create_group("layers/dense/vars")["0"] = np.zeros((3, 2), np.float32)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.15.0"}))
        archive.writestr("config.json", json.dumps(document))
        archive.writestr("model.weights.h5", weights.getvalue())
