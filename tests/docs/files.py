"""The files that the pages speak of, small: what every page finds in its folder before its first block."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.docs.blocks import ROOT, blocks_of
from wdport.uses.waveletdiff.config import Config
from wdport.uses.wavelets.lengths import group_lengths

ETTH1 = Config((5, 5, 8, 13), 7, 16, 4, 1, 8, wavelet="db2", boundary_mode="symmetric", seq_len=24)
WEATHER = Config(group_lengths(72, "db4", 3), 3, 16, 4, 1, 8, wavelet="db4", boundary_mode="symmetric", seq_len=72,
                 prediction_target="coefficient")  # fmt: skip

PROJECT = """from tests.user_model import Net


def build():
    return Net((5, 5, 8, 13), 7, 16, 4, 1, 8)
"""
ENCODER = """from wdport.uses.ts2vec.config import Config
from wdport.uses.ts2vec.reference import TS2Vec


class TSEncoder(TS2Vec):
    def __init__(self, input_dims, output_dims, hidden_dims, depth):
        super().__init__(Config(input_dims, hidden_dims, output_dims, depth))

    def forward(self, x):
        return super().forward(x)[0]
"""
LLAMA = """import keras


def build_torch():
    import torch

    return torch.nn.ModuleDict({"embed": torch.nn.Embedding(64, 32), "head": torch.nn.Linear(32, 64)})


def build():
    ids = keras.Input((8,), dtype="int32")
    return keras.Model(ids, keras.layers.Dense(64, name="head")(keras.layers.Embedding(64, 32, name="embed")(ids)))
"""
LLAMA_TABLE = """format: 2
torch: llama_models:build_torch
keras: llama_models:build
inputs: ["ids: b 8, below 64"]
layers:
  - {torch: embed, keras: embed, kind: embedding}
  - {torch: head, keras: head, kind: linear}
"""


def checkpoint(path: Path, config: Config = ETTH1) -> None:
    from tests.make import make_state, save

    save(path, make_state(config))


def training_run(path: Path) -> None:
    from tests.make import save_run

    save_run(path, ETTH1)


def small_samples(path: Path) -> None:
    import numpy as np

    values = np.random.default_rng(1).normal(size=(20, 24, 7)).cumsum(1).astype(np.float32)
    np.savez(path, series=values)


def training_config(path: Path, config: Config = ETTH1) -> None:
    import yaml

    names = ("dropout", "embed_dim", "num_heads", "num_layers", "prediction_target", "time_embed_dim")
    told = {
        "dataset": {"name": path.name.split(".")[0], "seq_len": config.seq_len},
        "model": {name: getattr(config, name) for name in names},
        "noise": {"schedule": config.noise_schedule},
        "attention": {"use_cross_level_attention": True},
        "wavelet": {"levels": "auto", "type": config.wavelet},
    }
    path.write_text(yaml.safe_dump(told))


def statistics(path: Path) -> None:
    path.write_text(json.dumps({"mean": [1.5] * 7, "std": [2.0] * 7}))


def converted(path: Path) -> None:
    import wdport

    with_config = {"num_heads": "4", "wavelet": "db2", "seq_len": "24"}
    checkpoint(path.with_name("source.ckpt"))
    wdport.convert(path.with_name("source.ckpt"), path, values=with_config, force=True)


def trained(path: Path) -> None:
    import keras

    import wdport

    model = wdport.load_model(path.with_name("etth1.keras"))
    keras.saving.save_model(model, path)


def models(path: Path, names: tuple[str, ...] = ("net.py", "twins.py")) -> None:
    """The guide's files, into the folder of ``path``."""
    for block in blocks_of("docs/own-model.md"):
        if block.file in names:
            path.with_name(block.file).write_text(block.text)


def valid(path: Path) -> None:
    """The example with the first pooling padded otherwise."""
    path.write_text(path.with_name("twins.py").read_text().replace('3, "same")', '3, "valid")'))


def untrained(path: Path, module: str, build: str) -> None:
    """A checkpoint with random weights of the model that a function of a module in the same folder builds."""
    import torch

    from tests.families.toys.nets import randomised

    sys.modules.pop(module, None)
    torch.save(randomised(getattr(import_module(module), build)()).state_dict(), path)
    sys.modules.pop(module, None)


def onet(path: Path) -> None:
    """The guide's files, and a checkpoint with random weights; ``path`` is the checkpoint."""
    models(path, ("net.py", "twins.py", "onet.yaml"))
    untrained(path, "net", "build")


def changed(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A copy of ``onet.pt`` in the same folder, with another state_dict."""

    def save(path: Path) -> None:
        import torch

        state = torch.load(path.with_name("onet.pt"))
        change(state)
        torch.save(state, path)

    return save


def digits(path: Path) -> None:
    """The network of README.md, and a checkpoint with random weights; ``path`` is the checkpoint."""
    path.with_name("digits.py").write_text(next(block.text for block in blocks_of("README.md") if block.file))
    untrained(path, "digits", "Digits")


def points(path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "points", path, dirs_exist_ok=True)


def unet(path: Path) -> None:
    from tests.uses.unet2d.make import SMALL, save

    save(path, {**SMALL, "sample_size": 8})


def eurobert(path: Path) -> None:
    from tests.uses.generation.words import with_tokenizer
    from tests.uses.masked_lm.make import SMALL, save

    with_tokenizer(save(path, SMALL))


def wan_vae(path: Path) -> None:
    from tests.uses.wan_vae.make import OLD, save

    save(path, OLD)


def _folder(path: Path, save: Callable[[Path], None]) -> None:
    """A folder of a library, converted."""
    import wdport

    save(path.with_suffix(".folder"))
    wdport.convert(path.with_suffix(".folder"), path)


def video(path: Path) -> None:
    import numpy as np

    np.save(path, np.random.default_rng(0).uniform(-1, 1, (5, 16, 16, 3)).astype(np.float32))


def ts2vec(path: Path) -> None:
    from tests.uses.ts2vec.make import save
    from wdport.uses.ts2vec.config import Config as Sizes

    save(path, Sizes(6, 64, 320, 10))


def llama(path: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    path.mkdir()
    rng = np.random.default_rng(0)
    shapes = {"embed.weight": (64, 32), "head.weight": (64, 32), "head.bias": (64,)}
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    parts = {f"model-0000{n}-of-00002.safetensors": names for n, names in
             enumerate((["embed.weight"], ["head.weight", "head.bias"]), 1)}  # fmt: skip
    for file, names in parts.items():
        save_file({name: tensors[name] for name in names}, path / file)
    weight_map = {name: file for file, names in parts.items() for name in names}
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (path / "config.json").write_text("{}")


def series(path: Path) -> None:
    import numpy as np

    values = np.random.default_rng(0).normal(size=(100, 7)).cumsum(0)
    np.savetxt(path, values, delimiter=",", header="HUFL,HULL,MUFL,MULL,LUFL,LULL,OT", comments="")


def text(content: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(content) and None


def copy(source: str) -> Callable[[Path], None]:
    return lambda path: shutil.copyfile(ROOT / source, path) and None


MAKERS: Mapping[str, Callable[[Path], Any]] = {
    "etth1.ckpt": checkpoint,
    "etth1.config.yaml": training_config,
    "etth1.keras": converted,
    "trained.keras": trained,
    "model.safetensors": converted,
    "stats.json": statistics,
    "ETTh1.csv": series,
    "onet.pt": onet,
    "missing.pt": changed(lambda state: state.pop("dense5.bias")),
    "unexpected.pt": changed(lambda state: state.update({"extra.weight": state["prelu1.weight"][:3].clone()})),
    "digits.pt": digits,
    "model.gguf": lambda path: path.write_bytes(b"GGUF\x03\x00\x00\x00"),
    "net.py": models,
    "valid.py": valid,
    "other.pt": lambda path: shutil.copyfile(path.with_name("onet.pt"), path),
    "onet.keras": lambda path: _own(path, "onet.pt", "onet.yaml"),
    "my_project/model.py": text(PROJECT),
    "demo/weather.ckpt": lambda path: checkpoint(path, WEATHER),
    "demo/weather.config.yaml": lambda path: training_config(path, WEATHER),
    "examples/cnn": lambda path: shutil.copytree(ROOT / "examples" / "cnn", path),
    "examples/weather": lambda path: shutil.copytree(ROOT / "examples" / "weather", path),
    "recording": lambda path: shutil.copytree(ROOT / "wdport" / "recording", path),
    "loader.py": copy("wdport/uses/exporting/loader.py"),
    "examples/points": points,
    "ddpm-cifar10-32": unet,
    "eurobert": eurobert,
    "wan-vae": wan_vae,
    "eurobert.keras": lambda path: _folder(path, eurobert),
    "vae.keras": lambda path: _folder(path, wan_vae),
    "video.npy": video,
    "ts2vec-stocks.pt": ts2vec,
    "run.ckpt": training_run,
    "etth1.csv": series,
    "samples.npz": small_samples,
    "models/encoder.py": text(ENCODER),
    "llama": llama,
    "llama.yaml": text(LLAMA_TABLE),
    "llama_models.py": text(LLAMA),
    "models/etth1.ckpt": checkpoint,
    "models/etth1.keras": converted,
    "models/ecg.ckpt": checkpoint,
    "models/ecg.keras": converted,
    "parity.toml": copy("parity.toml"),
}


def _own(path: Path, source: str, table: str) -> None:
    import wdport

    wdport.convert(path.with_name(source), path, mapping=path.with_name(table))


PAGES: Mapping[str, tuple[str, ...]] = {
    "docs/index.md": ("digits.pt",),
    "docs/tutorial.md": ("examples/cnn",),
    "docs/other-formats.md": ("model.gguf",),
    "docs/troubleshooting.md": ("onet.pt", "missing.pt", "unexpected.pt", "digits.pt"),
    "docs/weather.md": ("demo/weather.ckpt", "demo/weather.config.yaml", "examples/weather"),
    "docs/own-model.md": ("onet.pt",),
    "docs/own-sampling.md": ("examples/points",),
    "docs/suggest.md": ("net.py", "valid.py"),
    "docs/recording.md": ("etth1.ckpt", "etth1.keras", "my_project/model.py", "recording"),
    "docs/sampling.md": ("etth1.keras",),
    "docs/evaluation.md": ("etth1.keras", "etth1.csv", "samples.npz"),
    "docs/export.md": ("etth1.keras", "etth1.ckpt", "trained.keras", "loader.py", "eurobert.keras", "vae.keras",
                       "onet.pt", "onet.keras"),
    "docs/large-models.md": ("llama", "llama.yaml", "llama_models.py", "etth1.ckpt"),
    "docs/mapping.md": ("onet.pt", "onet.keras", "other.pt"),
    "docs/waveletdiff.md": ("etth1.ckpt", "etth1.config.yaml", "stats.json"),
    "docs/wavelets.md": ("ETTh1.csv",),
    "docs/unet2d.md": ("ddpm-cifar10-32",),
    "docs/masked_lm.md": ("eurobert",),
    "docs/generation.md": ("eurobert",),
    "docs/wan_vae.md": ("wan-vae", "video.npy"),
    "docs/training.md": ("run.ckpt", "etth1.csv", "etth1.config.yaml"),
    "docs/ts2vec.md": ("ts2vec-stocks.pt", "models/encoder.py"),
    "docs/formats/converted-files.md": ("model.safetensors",),
    "docs/ci.md": ("models/etth1.ckpt", "models/etth1.keras", "models/ecg.ckpt", "models/ecg.keras", "parity.toml"),
}  # fmt: skip
"""What every page needs, in the order in which it is made; a page that is not here needs nothing."""


FULL = {"docs/ci.md"}
"""Pages all of whose commands and Python are left to `make parity`."""


def names_of(page: str) -> dict[str, Any]:
    """The values that a page's Python calls by name without making them."""
    import numpy as np

    rng = np.random.default_rng(0)
    coefficients = rng.standard_normal((2, 31, 7)).astype(np.float32)
    if page == "docs/training.md":
        import torch

        module = torch.nn.Linear(2, 3)
        return {"module": module, "torch_optimizer": torch.optim.AdamW(module.parameters())}
    if page == "docs/waveletdiff.md":
        return {"coefficients": coefficients, "step": np.array([10.0, 500.0], np.float32)}
    if page == "docs/export.md":
        time = np.array([0.1, 0.5], np.float32)
        return {"state": coefficients, "time": time, "seed": 0, "x_T": coefficients, "noise": None,
                "input_ids": rng.integers(0, 30, (2, 9)), "attention_mask": np.arange(9) < [[9], [5]],
                "video": rng.uniform(-1, 1, (1, 5, 16, 16, 3)).astype(np.float32)}  # fmt: skip
    if page == "docs/wavelets.md":
        return {"x": rng.standard_normal((3, 24, 7)).astype(np.float32)}
    if page == "docs/unet2d.md":
        return {"x": rng.standard_normal((2, 8, 8, 3)).astype(np.float32), "t": np.array([3.0, 500.0], np.float32)}
    if page == "docs/masked_lm.md":
        return {"input_ids": rng.integers(0, 30, (2, 9)), "attention_mask": np.arange(9) < [[9], [5]]}
    if page == "docs/wan_vae.md":
        return {"video": rng.uniform(-1, 1, (1, 5, 16, 16, 3)).astype(np.float32)}
    if page == "docs/ts2vec.md":
        return {"series": rng.standard_normal((2, 24, 6)).astype(np.float32)}
    if page == "docs/recording.md":
        import torch

        from tests.user_model import Net

        transformer = lambda config: Net((5, 5, 8, 13), 7, 16, 4, 1, 8)  # noqa: E731
        return {"np": np, "torch": torch, "MyConfig": dict, "WaveletDiffusionTransformer": transformer}
    return {}
