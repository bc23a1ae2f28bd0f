"""Ways to damage a converted file of any of the three formats, whatever it holds beside the weights."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import safetensors.numpy

Make = Callable[[Path], object]
WEIGHTS = "model.weights.h5"
ACCOUNT = "wdport.json"
BIAS = "level_1/input_proj/vars/1"
"""A bias of the small model, and its name in a file of ours: ``level_1/input_proj/bias``."""


def members(data: bytes) -> dict[str, bytes]:
    """The members of an archive, in order."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def packed(contents: Mapping[str, bytes], compressed: str = "") -> bytes:
    """An archive of these members, each stored but for the one that is to be ``compressed``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in contents.items():
            info = zipfile.ZipInfo(name)
            archive.writestr(info, data, zipfile.ZIP_DEFLATED if name == compressed else zipfile.ZIP_STORED)
    return buffer.getvalue()


def edited(change: Callable[[h5py.File], object]) -> Make:
    """The good weights after an edit by h5py, as ``.weights.h5`` or packed into ``.keras`` by the name of the file."""

    def make(path: Path) -> None:
        kept = path.with_name("edited.h5")
        contents = members(path.with_name("good.keras").read_bytes())
        kept.write_bytes(
            contents[WEIGHTS] if path.suffix == ".keras" else path.with_name("good.weights.h5").read_bytes()
        )
        with h5py.File(kept, "a") as file:
            change(file)
        data = kept.read_bytes()
        kept.unlink()
        path.write_bytes(packed({**contents, WEIGHTS: data}) if path.suffix == ".keras" else data)

    return make


def repacked(change: Callable[[dict[str, bytes]], Mapping[str, bytes]], compressed: str = "") -> Make:
    """The good ``.keras`` file with other members."""
    return lambda path: path.write_bytes(packed(change(members(path.with_name("good.keras").read_bytes())), compressed))


def with_member(name: str, data: bytes) -> Make:
    """The good ``.keras`` file with one member more, or another one of that name."""
    return repacked(lambda contents: {**contents, name: data})


def configured(values: Mapping[str, object]) -> Make:
    """The good ``.keras`` file as Keras saves it, without an account of ours, and with other values in its
    configuration: with the account beside it, a change would be refused for its seal, whatever it is."""

    def change(contents: dict[str, bytes]) -> dict[str, bytes]:
        document = json.loads(contents["config.json"])
        document["config"]["config"].update(values)
        told = {**contents, "config.json": json.dumps(document).encode()}
        return {name: data for name, data in told.items() if name != ACCOUNT}

    return repacked(change)


def sealed(manifest: Mapping[str, object]) -> str:
    """A manifest under a seal of its own."""
    body = json.dumps(manifest, separators=(",", ":"))
    return f'{{"format":2,"sha256":"{hashlib.sha256(body.encode()).hexdigest()}","manifest":{body}}}'


def resealed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest in a converted ``.safetensors`` file and seal it again."""
    arrays = safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, "np") as file:
        manifest = json.loads(file.metadata()["wdport"])["manifest"]
    change(manifest)
    safetensors.numpy.save_file(arrays, path, {"wdport": sealed(manifest)})
