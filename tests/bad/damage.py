"""Ways to damage a converted file of any of the three formats, whatever it holds beside the weights."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

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


def without_member(name: str) -> Make:
    """The good ``.keras`` file with one member less."""
    return repacked(lambda contents: {key: data for key, data in contents.items() if key != name})


def configured(change: Callable[[dict[str, Any]], object]) -> Make:
    """The good file of the same ending with its configuration changed wherever it stands, and nothing else."""

    def make(path: Path) -> None:
        ending = next(e for e in (".keras", ".weights.h5", ".safetensors") if path.name.endswith(e))
        good = path.with_name(f"good{ending}")
        if ending == ".keras":
            contents = members(good.read_bytes())
            told = {name: _walk(data.decode(), change).encode() for name, data in contents.items() if name != WEIGHTS}
            path.write_bytes(packed({**contents, **told}))
        elif ending == ".safetensors":
            data = good.read_bytes()
            length = struct.unpack("<Q", data[:8])[0]
            header = json.loads(data[8 : 8 + length])
            header["__metadata__"] = {k: _walk(v, change) for k, v in header["__metadata__"].items()}
            raw = json.dumps(header).encode()
            raw += b" " * (-len(raw) % 8)
            path.write_bytes(struct.pack("<Q", len(raw)) + raw + data[8 + length :])
        else:
            path.write_bytes(good.read_bytes())
            with h5py.File(path, "a") as file:
                text = bytes(file[ACCOUNT][()]).decode()
                del file[ACCOUNT]
                file[ACCOUNT] = np.frombuffer(_walk(text, change).encode(), np.uint8)

    return make


def _walk(text: str, change: Callable[[dict[str, Any]], object]) -> str:
    """JSON text, with every object that holds ``num_layers`` changed, in JSON texts inside it as well."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return json.dumps(_visit(value, change)) if isinstance(value, dict | list) else text


def _visit(value: Any, change: Callable[[dict[str, Any]], object]) -> Any:
    if isinstance(value, str) and value[:1] in "{[":
        return _walk(value, change)
    if isinstance(value, list):
        return [_visit(each, change) for each in value]
    if isinstance(value, dict):
        value = {name: _visit(each, change) for name, each in value.items()}
        if "num_layers" in value and not isinstance(value["num_layers"], dict | str):
            change(value)
    return value
