"""Good files of every kind that is read, to make mutants of."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import scipy.io
import torch
from safetensors.torch import save

from tests.bad.ground import ground
from tests.bad.series import GRID, mat, npy, npz
from tests.checkpoint.forge import ROOT, archive, entry, in_tar, pickled, safetensors, table, tarred, tensor
from tests.checkpoint.legacy import saved
from tests.families.toys.nets import lstm
from tests.fuzz.targets import run_of_samples
from tests.make import SETTINGS, make_state, save_run
from wdport.files.outputs import writable
from wdport.files.sealed_archive import sealed_archive
from wdport.recording.input_text import parse_input
from wdport.recording.record_file import record_file


def _zips() -> list[bytes]:
    buffer = io.BytesIO()
    torch.save({"epoch": 1, "state_dict": dict(list(make_state().items())[:12])}, buffer)
    return [buffer.getvalue(), archive(), archive(pickled(table({"a": tensor(), "b": tensor((3,), (2,))})))]


def _legacies() -> list[bytes]:
    some = dict(list(make_state().items())[:12])
    return [saved(some), saved({"model": some, "step": 3}), saved(torch.nn.Linear(2, 3).state_dict())]


def _safetensors() -> list[bytes]:
    some = {name: t.contiguous() for name, t in list(make_state().items())[:12]}
    return [save(some), save(some, {"format": "pt"}), safetensors({"w": entry()})]


def _scripted() -> list[bytes]:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 3)), buffer)
    return [buffer.getvalue()]


def _experiment() -> bytes:
    """An archive of a folder with a checkpoint and its configuration."""
    return tarred(in_tar("run/checkpoint.ckpt", _zips()[0]), in_tar("run/config.yaml", CONFIG))


def _recordings() -> list[bytes]:
    """A small model's, which is read in a moment."""
    with TemporaryDirectory() as folder:
        checkpoint, output = Path(folder, "x.pt"), Path(folder, "x.run.npz")
        torch.save(lstm().state_dict(), checkpoint)
        given = (parse_input("x: b 9 5"),)
        record_file("tests.families.toys.nets:lstm", str(checkpoint), str(output), inputs=given)
        return [output.read_bytes()]


def _runs() -> list[bytes]:
    with TemporaryDirectory() as folder:
        return [save_run(Path(folder, "x.ckpt")).read_bytes()]


def _optimizer_files() -> list[bytes]:
    from wdport.conversion.convert import convert

    with TemporaryDirectory() as folder:
        made = convert(save_run(Path(folder, "x.ckpt")), values=SETTINGS, with_optimizer=True).optimizer
        assert made is not None
        return [made.path.read_bytes()]


def _states() -> list[bytes]:
    from wdport.uses.training.run_state import NAME, write_state

    with TemporaryDirectory() as folder:
        arrays = {"trained": [np.ones((3, 2), np.float32), np.arange(4.0)], "optimizer": [np.array(3, np.int32)]}
        facts = {"steps": 3, "rows": [{"epoch": 1, "loss": 0.5}], "settings": {"seed": 0}}
        write_state(writable(Path(folder, NAME)), arrays, facts)
        return [Path(folder, NAME).read_bytes()]


def _sealed(**arrays: np.ndarray) -> Callable[[], list[bytes]]:
    def made() -> list[bytes]:
        with TemporaryDirectory() as folder:
            with sealed_archive(writable(Path(folder, "x.npz"))) as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
            return [Path(folder, "x.npz").read_bytes()]

    return made


def _of_run(wanted: str) -> Callable[[], list[bytes]]:
    def made() -> list[bytes]:
        with TemporaryDirectory() as folder:
            (file,) = run_of_samples(Path(folder, "x.npz")).glob(wanted)
            return [file.read_bytes()]

    return made


def _converted_npz() -> list[bytes]:
    from wdport.conversion.convert import convert

    return [convert(ground() / "good.ckpt", ground() / "good.npz", values=SETTINGS, force=True).output.read_bytes()]


def _compressed(ending: str) -> bytes:
    """The archive of one array whose members are compressed."""
    buffer = io.BytesIO()
    if ending == "npz":
        np.savez_compressed(buffer, x=GRID)
    else:
        scipy.io.savemat(buffer, {"x": GRID}, do_compression=True)
    return buffer.getvalue()


def _exports() -> list[bytes]:
    """In a process of its own: this one forks none, and keeps its backend closed."""
    with TemporaryDirectory() as folder:
        output = Path(folder, "x.stablehlo")
        command = [sys.executable, "-m", "wdport", "export", str(ground() / "good.keras"), "-o", str(output), "-q"]
        subprocess.run(command, check=True)
        return [output.read_bytes()]


def _good(name: str) -> Callable[[], list[bytes]]:
    return lambda: [(ground() / name).read_bytes()]


def _indexes() -> list[bytes]:
    told = {"metadata": {"total_size": 48}, "weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}
    return [json.dumps(told, indent=1).encode()]


def _tables() -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "mappings").glob("*.yaml"))] + [
        (ground() / "own.yaml").read_bytes()
    ]


CONFIG = b"""model:
  num_layers: 1
  embed_dim: 16
  time_embed_dim: 8
  prediction_target: noise
attention: {use_cross_level_attention: true}
noise: {schedule: exponential}
dataset: {name: etth1, seq_len: 24}
wavelet: {type: db2, levels: 3}
training: {epochs: 5000, lr: 1.0e-3}
"""
CSV = [b"date,a,b\n2016-07-01 00:00:00,1,2\n2016-07-02,3.5,-4e3\n", b"1;2\n3;4\n", b'"a, m",b\n"1",2\n', b"1 2\n3 4\n"]
ARFF = [b"@RELATION r\n@ATTRIBUTE a NUMERIC\n@attribute 'b c' real\n@ATTRIBUTE y {0,1}\n@DATA\n1,2,1\n3,4.5,0\n"]
POLICY = [b'[bounds]\nlogic = { value = 1e-9, reason = "emulated", expires = 2027-01-31 }\nnumerics = { value = 4 }\n'
          b'[[waivers]]\ntap = "a.b"\ngate = "B"\nreason = "fused"\nexpires = 2027-01-31\n']  # fmt: skip
BASELINE = [b'{"schema": 1, "taps": {"a.b": {"isolated": 1e-15, "cumulative": 2e-15, "rms_ratio": 1.0}}}']
STATISTICS = [b'{"mean": [1.0, -2.0, 3.0], "std": [0.5, 4.0, 1e-3]}']

SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "zip": _zips,
    "torchscript": _scripted,
    "keras": _good("good.keras"),
    "weights.h5": _good("good.weights.h5"),
    "converted safetensors": _good("good.safetensors"),
    "recording": _recordings,
    "legacy": _legacies,
    "experiment tar": lambda: [_experiment()],
    "experiment tar.gz": lambda: [gzip.compress(_experiment())],
    "safetensors": _safetensors,
    "index": _indexes,
    "mapping": _tables,
    "configuration": lambda: [CONFIG],
    "csv": lambda: CSV,
    "arff": lambda: ARFF,
    "npy": lambda: [npy(GRID), npy(np.arange(5, dtype="i2"))],
    "npz": lambda: [npz(x=GRID), _compressed("npz")],
    "optimizer": _runs,
    "optimizer file": _optimizer_files,
    "training state": _states,
    "converted npz": _converted_npz,
    "samples": _sealed(coefficients=np.ones((3, 8, 2), np.float32), series=np.ones((3, 6, 2))),
    "latents": _sealed(latents=np.ones((1, 2, 3, 3, 4), np.float32), logvar=np.zeros((1, 2, 3, 3, 4), np.float32)),
    "sample part": _of_run("*.npz"),
    "sample run": _of_run("run.json"),
    "exported": _exports,
    "exported, loader": _exports,
    "prompts": lambda: [b"[[1, 2, 4], [5, 6]]", b"[[3]]"],
    "parameter names": lambda: [b'["a.weight", "a.bias"]'],
    "streamed npy": lambda: [npy(np.zeros((2, 4, 3), np.float32))],
    "mat": lambda: [mat(x=GRID), _compressed("mat")],
    "statistics": lambda: STATISTICS,
    "statistics npz": lambda: [npz(mean=[1.0, 2.0], std=[1.0, 2.0])],
    "known": lambda: [b"a,b\n1,\n,2\n3,NA\n", *CSV],
    "init": lambda: [npy(np.zeros((2, 4, 3), np.float32))],
    "policy": lambda: POLICY,
    "baseline": lambda: BASELINE,
}


def write_seeds(folder: Path, names: list[str]) -> None:
    """The good files of these readers, as the workers look for them, and what some of them need beside them."""
    for name in names:
        for number, data in enumerate(SEEDS[name]()):
            (folder / f"{name}.{number}").write_bytes(data)
    (folder / "good.ckpt").write_bytes((ground() / "good.ckpt").read_bytes())
    for name in "ab":
        (folder / f"{name}.safetensors").write_bytes(safetensors({name: entry()}))
