"""Checkpoints whose headers declare what their bytes cannot hold: time and memory stay those of the bytes."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from wdport.base.errors import InputError, MisfitError
from wdport.checkpoint import open_checkpoint
from wdport.conversion.prepare import Settings, prepare

from ..make import make_state
from .forge import entry, safetensors

HUGE = 10**9


def refused_within(path: Path, seconds: float, above: int) -> str:
    """The refusal of ``path``, by the processor's time and the memory that Python asks for above the file's size."""
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(InputError) as caught:
            open_checkpoint(path)
        assert time.process_time() - start < seconds
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size + above
    finally:
        tracemalloc.stop()
    return str(caught.value)


def entries(count: int) -> bytes:
    empty = json.dumps(entry("F32", [0], [0, 0]))
    return ",".join(f'"t{number}":{empty}' for number in range(count)).encode()


HEADERS: dict[str, tuple[Callable[[], bytes], str]] = {
    "201,000 tensors": (lambda: b"{" + entries(201_000) + b"}", "more than 200000 tensors"),
    "lists": (lambda: b'{"a":[' + b"[]," * 3_000_000 + b"[]]}", "a: its header entry"),
    "axes": (lambda: b'{"a":{"dtype":"F32","shape":[' + b"0," * 3_000_000 + b'0],"data_offsets":[0,0]}}', "a: its"),
    "metadata": (lambda: b'{"__metadata__":{' + b",".join(b'"%d":""' % n for n in range(500_000)) + b"}}", "10000"),
    "blanks": (lambda: b"{}" + b" " * 10_000_000, "no state_dict"),
    "nesting": (lambda: b'{"a":' * 1_000_000, "a: its header entry"),
    "a long name": (lambda: b'{"' + b"a" * 10_000_000 + b'":1}', "its header entry"),
    "escapes": (lambda: b'{"' + rb"\u0041" * 1_000_000 + b'":1}', "its header entry"),
}  # fmt: skip


@pytest.mark.parametrize("case", HEADERS)
def test_a_header_that_is_large(case: str, tmp_path: Path) -> None:
    make, message = HEADERS[case]
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors(make(), b""))
    assert message in refused_within(path, 2.0, 64 << 20)


FORMS = {
    "blanks": b' {\n\t"w" : {"dtype":\r"F32" ,"shape" :[ 2, 3 ], "data_offsets":[0 , 24]}\n}\t ',
    "another order": b'{"w":{"data_offsets":[0,24],"shape":[2,3],"dtype":"F32"}}',
    "escapes": rb'{"\u0077":{"dtype":"F3\u0032","shape":[2,3],"data_offsets":[0,24]}}',
    "metadata last": rb'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, "__metadata__" : { "a" : "\"}" } }',
    "metadata of nothing": b'{"__metadata__":{},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}',
}


@pytest.mark.parametrize("form", FORMS)
def test_any_form_that_json_allows_is_read_as_the_library_reads_it(form: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors(FORMS[form]))
    with safe_open(path, "np") as theirs, open_checkpoint(path) as ours:
        assert list(theirs.keys()) == list(ours.tensors) == ["w"]
        assert (theirs.get_tensor("w") == ours.read("w")).all()
        assert (theirs.metadata() or {}) == ours.metadata


def test_an_index_of_more_tensors_than_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {f"t{number}": "x" for number in range(210_000)}}))
    assert "names 210000 tensors" in refused_within(path, 2.0, 64 << 20)


def write_safetensors(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    header: dict[str, object] = {}
    at = 0
    for name, shape in shapes.items():
        nbytes = 4 * torch.Size(shape).numel()
        header[name] = entry("F32", list(shape), (at, at + nbytes))
        at += nbytes
    path.write_bytes(safetensors(header, bytes(at)))


def write_torch(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    torch.save({name: torch.zeros(shape) for name, shape in shapes.items()}, path)


@pytest.mark.parametrize(
    ("write", "ending", "shape", "message"),
    [
        (write_safetensors, ".pos_encoding.pe", (HUGE, 0), "level_lengths 1000000000"),
        (write_torch, ".pos_encoding.pe", (HUGE, 0), "level_lengths 1000000000"),
        (write_safetensors, ".pos_encoding.pe", (1 << 23, 0), "every size must be at least 1"),
        (write_torch, ".pos_encoding.pe", (0, HUGE), "every size must be at least 1"),
        (write_safetensors, "time_embedding.mlp.2.bias", (HUGE, 0), "misfits"),
        (write_safetensors, "output_proj.bias", (HUGE, 0), "features 1000000000"),
        (write_torch, ".q.weight", (HUGE, 0), "misfits"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_empty_tensors_with_long_axes(
    write: Callable[[Path, dict[str, tuple[int, ...]]], None], ending: str, shape: tuple[int, ...], message: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    """A file of a few kilobytes: no table and no series of a thousand million steps is looked for."""
    shapes = {name: tuple(tensor.shape) for name, tensor in make_state().items() if not name.endswith("_all")}
    shapes = {name: shape if name.endswith(ending) else old for name, old in shapes.items()}
    if not any(name.endswith(ending) for name in shapes):
        shapes["a.q.weight"] = shape
    write(tmp_path / "x.bin", shapes)
    start = time.process_time()
    with pytest.raises(MisfitError, match=message), prepare(tmp_path / "x.bin", Settings()):
        pass
    assert time.process_time() - start < 2.0


def test_tables_are_compared_by_shape_before_they_are_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One position table of a thousand million rows, beside sound ones."""
    built: list[int] = []
    monkeypatch.setattr("wdport.uses.waveletdiff.family.position_table", lambda *sizes: built.append(sizes[0]))
    shapes = {name: tuple(tensor.shape) for name, tensor in make_state().items() if not name.endswith("_all")}
    shapes["level_transformers.2.pos_encoding.pe"] = (1 << 24, 0)
    write_safetensors(tmp_path / "x.safetensors", shapes)
    with pytest.raises(MisfitError), prepare(tmp_path / "x.safetensors", Settings()):
        pass
    assert built == []
