"""Whatever the bytes, the reader answers with a tensor or with one of its own errors."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wdport.checkpoint.pickle_machine import _OPCODES
from wdport.errors import WdportError

from .bad import read_all
from .forge import archive, entry, name, pickled, safetensors

relaxed: Callable[..., settings] = functools.partial(
    settings, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@functools.cache
def real_file() -> bytes:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3))
    buffer = io.BytesIO()
    torch.save({"state_dict": model.state_dict(), "epoch": 1, "pytorch-lightning_version": "2"}, buffer)
    return buffer.getvalue()


def attempt(path: Path, content: bytes) -> dict[str, bytes] | None:
    """Every tensor's bytes, or None where the file is refused."""
    path.write_bytes(content)
    try:
        return read_all(path)
    except WdportError:
        return None


def weights() -> set[bytes]:
    return {value.numpy().tobytes() for value in torch.load(io.BytesIO(real_file()))["state_dict"].values()}


@relaxed(max_examples=300)
@given(st.data())
def test_flipped_bits_are_refused_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    """A flip either has no effect on the weights' bytes or is refused: it never passes silently."""
    content = bytearray(real_file())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    found = attempt(tmp_path / "x.pt", bytes(content))
    assert found is None or set(found.values()) == weights()


@relaxed(max_examples=150)
@given(st.data())
def test_cuts_and_gaps_are_refused(tmp_path: Path, data: st.DataObject) -> None:
    content = real_file()
    start = data.draw(st.integers(0, len(content) - 1))
    stop = data.draw(st.integers(start + 1, len(content)))
    assert attempt(tmp_path / "x.pt", content[:start] + content[stop:]) is None


@relaxed(max_examples=150)
@given(st.binary(max_size=200), st.integers(0, 3))
def test_any_bytes(tmp_path: Path, noise: bytes, start: int) -> None:
    head = (b"", b"PK\3\4", b"\x10\0\0\0\0\0\0\0{", real_file()[:300])[start]
    assert attempt(tmp_path / "x.pt", head + noise) is None


@relaxed(max_examples=200)
@given(st.binary(max_size=60))
def test_any_safetensors_header(tmp_path: Path, noise: bytes) -> None:
    attempt(tmp_path / "x.safetensors", safetensors(b"{" + noise))
    good = safetensors({"w": entry()})
    attempt(tmp_path / "x.safetensors", good[:20] + noise + good[20 + len(noise) :])


NAMES = [name("collections", "OrderedDict"), name("torch", "FloatStorage"), name("torch", "float32")]
NAMES += [name("torch._utils", "_rebuild_tensor_v2"), name("torch", "Size")]
pieces = st.one_of(
    st.sampled_from([bytes([code]) for code in _OPCODES]),
    st.sampled_from([b"q\0", b"h\0", b"K\1", b"X\1\0\0\0a", b"X\7\0\0\0storage", b"X\1\0\0\0000", *NAMES]),
    st.binary(max_size=3),
)


@relaxed(max_examples=400)
@given(st.lists(pieces, max_size=40))
def test_any_opcodes(tmp_path: Path, program: list[bytes]) -> None:
    """The machine ends in a tree or a fault; no other exception leaves it."""
    attempt(tmp_path / "x.pt", archive(pickled(*program)))
