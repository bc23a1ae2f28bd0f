"""What is verified under an edit: a folder of pairs, and by family the runs from the cheapest to the whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import labelled  # type: ignore[import-not-found, unused-ignore]
import numpy as np
import torch
from net import MLP  # type: ignore[import-not-found, unused-ignore]
from torch.optim import SGD, Adam, AdamW, lr_scheduler

from parity_tests.faults import FAMILIES, fault_set
from tests.conversion.test_optimizer import TABLE, batches, decay_groups
from tests.families.toys import residual_net
from tests.families.toys.nets import randomised
from tests.make import stated
from tests.uses.masked_lm import make as masked_lm
from tests.uses.unet2d import make as unet2d
from tests.uses.wan_vae import make as wan_vae
from wdport.parity.selftest.specimen import Specimen
from wdport.uses.data.transforms import OHLC_ATR, OHLCV, WindowStatistics
from wdport.uses.diffusion.noise_levels import NoiseLevels
from wdport.uses.diffusion.reference_scheduler import CONSISTENCY, SCORE_SDE
from wdport.uses.diffusion.scheduler_config import LEARNED_RANGE, Scheduler
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.reference import random_tensors
from wdport.uses.wavelets.lengths import group_lengths

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
POINTS = Path(__file__).parents[2] / "examples" / "points"


STANDARDISED = Config((5, 5, 8, 13), 3, 16, 2, 2, 8, wavelet="db2", boundary_mode="symmetric", seq_len=24,
                      norm_mean=(0.517, -2.113, 30.71), norm_std=(2.037, 0.2513, 7.19))  # fmt: skip
"""A WaveletDiff with the mean and standard deviation of its data."""


def priced() -> Config:
    """A WaveletDiff of prices, with the statistics of every window of its data."""
    values = np.random.default_rng(0).uniform(0.5, 2.0, (9, 26)).astype(np.float32)
    statistics = {"anchors": 50.0 * values[:, 0], "atr_pcts": values[:, 1], "vol_smas": values[:, 2:]}
    return replace(STANDARDISED, features=5, norm_mean=None, norm_std=None, scale_embedding=True, conditioning="scale",
                   transform=OHLC_ATR, feature_names=OHLCV,
                   window_statistics=WindowStatistics(statistics, len(values)).pack())  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One job of :class:`parity_tests.edits.server.Server`."""

    name: str
    checkpoint: str
    converted: str
    verify: Mapping[str, Any] | None = None
    export: Mapping[str, Any] | None = None
    convert: Mapping[str, Any] | None = None

    def job(self) -> dict[str, Any]:
        """Its lines for `process.py`."""
        return asdict(self)


def pairs(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """By family, checkpoints with random weights and their conversions, written into ``folder``."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name in FAMILIES:
        faults = fault_set(name)
        configs = {**faults.examples, **{f"more {at}": each for at, each in enumerate(more(name, faults.examples))}}
        for at, config in enumerate(configs.values()):
            specimen = Specimen(name, faults, config)
            paths = [folder / f"{name}-{at}{each.suffix}" for each in (specimen.checkpoint, specimen.converted)]
            for path, source in zip(paths, (specimen.checkpoint, specimen.converted), strict=True):
                path.write_bytes(source.read_bytes())
            found.setdefault(name, []).append((str(paths[0]), str(paths[1])))
    return found


def more(family: str, known: Mapping[str, Any]) -> list[Any]:
    """Further configurations of a family, so that every edit's code runs under one of them."""
    config = next(iter(known.values()))
    if family == "masked_lm":
        return [replace(config, hidden_act=name, pad_token_id=0) for name in ("gelu_new", "gelu_pytorch_tanh")]
    if family == "unet2d":
        wide = Scheduler(100, "scaled_linear", variance_type="fixed_large", clip=None, timestep_spacing="trailing",
                         set_alpha_to_one=False)  # fmt: skip
        cosine = Scheduler(100, "squaredcos_cap_v2", prediction_type="v_prediction", clip=2.0,
                           timestep_spacing="linspace")  # fmt: skip
        score = NoiseLevels(SCORE_SDE, 0.01, 20.0, 50)
        few = NoiseLevels(CONSISTENCY, 0.1, 20.0, 40, sigma_data=0.5, clip_denoised=True)
        learned = Scheduler(100, variance_type=LEARNED_RANGE)
        return [replace(config, sample_size=(8, 12), scheduler=wide), replace(config, scheduler=cosine, freq_shift=1),
                replace(config, time_embedding_type="fourier", scheduler=score), replace(config, scheduler=few),
                replace(config, out_channels=2 * config.in_channels, scheduler=learned, no_class=2)]  # fmt: skip
    if family == "waveletdiff":
        found = [STANDARDISED, replace(STANDARDISED, qk_norm=True), priced()]
        for mode, length, wavelet in (("periodization", 23, "db2"), ("smooth", 24, "db3")):
            lengths = group_lengths(length, wavelet, 3, mode)
            found.append(replace(config, boundary_mode=mode, seq_len=length, wavelet=wavelet, level_lengths=lengths,
                                 num_layers=1))  # fmt: skip
        return found
    return []


def runs(family: str, area: str, known: Mapping[str, list[tuple[str, str]]], folder: Path) -> Iterator[Run]:
    """The runs for an edit, in order."""
    names = {"shared": ["unet2d", "waveletdiff"]}.get(family, [family])
    chosen = [pair for name in names for pair in known.get(name, [])]
    if area == "export":
        yield from _exports(family, known)
    if area == "file":
        yield from (_anew(folder, name) for name in anew())
        return
    if area == "optimizer":
        yield from (_resumed(folder, name) for name in optimizers())
        yield Run("waveletdiff-0 --full", *known["waveletdiff"][0], {"full": True})
        return
    if area == "training" and GOLDEN.is_dir():
        yield _resumed(folder, "etth1")
    if area in ("sampling", "edges") and family == "shared":
        for name in points():
            yield Run(name, str(_network(folder, name)), str(folder / f"{name}.keras"), _table(folder, name))
    for name, at in folders() if area != "export" else ():
        if name == family:
            path = str(folder / f"folder-{name}-{at}")
            yield Run(f"folder {name}-{at}", path, f"{path}.keras", {}, convert={})
    if family == "ts2vec" and GOLDEN.is_dir():
        chosen = [(str(GOLDEN / "ts2vec-stocks.pt"), str(folder / "ts2vec.keras"))]
    for full in (False, True):
        for checkpoint, converted in chosen[: 2 if full else None]:
            yield Run(f"{Path(converted).stem}{' --full' * full}", checkpoint, converted, {"full": full})


def anew() -> dict[str, Config]:
    """Configurations of checkpoints that the edited code converts."""
    return {"standardised": STANDARDISED, "qk_norm": replace(STANDARDISED, qk_norm=True)}


def _anew(folder: Path, name: str) -> Run:
    """The conversion and the whole comparison of a checkpoint that :func:`prepare` wrote."""
    config = anew()[name]
    stated = {"num_heads": config.num_heads, "wavelet": config.wavelet, "seq_len": config.seq_len,
              "boundary_mode": config.boundary_mode, "prediction_target": config.prediction_target}  # fmt: skip
    values = {key: str(value) for key, value in stated.items() if value is not None}
    return Run(f"convert {name}", str(folder / f"{name}.pt"), str(folder / f"{name}.keras"), {"full": True},
               convert={"values": values, "norm_stats": str(folder / "norm.json")})  # fmt: skip


def _exports(family: str, known: Mapping[str, list[tuple[str, str]]]) -> Iterator[Run]:
    orders: dict[str, list[dict[str, Any]]] = {
        "waveletdiff": [{}, {"what": "sampler", "sampler": "ddim", "steps": 100, "eta": 0.5, "batch": 2}],
        "unet2d": [{}, {"what": "sampler", "sampler": "ddpm", "steps": 10, "batch": 2}],
        "wan_vae": [{}],
        "masked_lm": [{}],
    }
    for name in {"shared": ["waveletdiff", "unet2d"]}.get(family, [family]):
        for at, (checkpoint, converted) in enumerate(known.get(name, [])):
            for order in orders.get(name, []) if at in (0, 3 if name == "unet2d" else 1) else []:
                yield Run(f"export {name}-{at} {order or ''}", checkpoint, converted, export=order)
            if family == "shared" and not at:
                yield Run(f"export {name}-{at} --to torch", checkpoint, converted, export={"to": "torch"})


def _resumed(folder: Path, name: str) -> Run:
    """The comparison of a checkpoint's optimizer, which :func:`prepare` converted."""
    etth1 = name == "etth1"
    checkpoint = GOLDEN / "etth1-seq24-db2.ckpt" if etth1 else folder / f"{name}.pt"
    given = {} if etth1 else {"mapping": str(folder / "residual.yaml")}
    return Run(f"{name} --with-optimizer", str(checkpoint), str(folder / f"{name}.keras"),
               {**given, "resume": str(folder / f"{name}.optimizer.safetensors")})  # fmt: skip


def prepare(folder: Path) -> list[Run]:
    """Checkpoints with optimizers, and conversions of real ones, made by the unedited code."""
    table = folder / "residual.yaml"
    table.write_text(TABLE)
    told = {"mapping": str(table), "with_optimizer": True}
    found = []
    for name in optimizers():
        if name != "etth1":
            torch.save(trained(name), folder / f"{name}.pt")
            found.append(Run(name, str(folder / f"{name}.pt"), str(folder / f"{name}.keras"), convert=told))
    (folder / "norm.json").write_text(json.dumps({"mean": STANDARDISED.norm_mean, "std": STANDARDISED.norm_std}))
    for name, config in anew().items():
        tensors = random_tensors(config, 0)
        torch.save({key: torch.from_numpy(array) for key, array in tensors.items()}, folder / f"{name}.pt")
    for name, network in (("points", MLP()), ("labelled", labelled.Net())):
        torch.save(network.state_dict(), folder / f"{name}.pt")
    for name, text in points().items():
        (folder / f"{name}.yaml").write_text(text)
        network = str(_network(folder, name))
        found.append(Run(name, network, str(folder / f"{name}.keras"), convert=_table(folder, name)))
    for (name, at), save in folders().items():
        save(folder / f"folder-{name}-{at}")
    if not GOLDEN.is_dir():
        return found
    config = str(GOLDEN / "etth1-seq24-db2.config.yaml")
    etth1 = {"config": config, "with_optimizer": True}
    return [
        *found,
        Run("etth1", str(GOLDEN / "etth1-seq24-db2.ckpt"), str(folder / "etth1.keras"), convert=etth1),
        Run("ts2vec", str(GOLDEN / "ts2vec-stocks.pt"), str(folder / "ts2vec.keras"), convert={}),
    ]


def points() -> dict[str, str]:
    """Tables of a user's own networks: flows and a diffusion of points in a plane."""
    flow, diffusion = ((POINTS / f"{name}.yaml").read_text() for name in ("flow", "diffusion"))
    cosine = flow.replace("path: linear", "path: cosine")
    scaled = cosine.replace("target: velocity", "target: noise").replace("from 0 to 1", "from 0 to 1000")
    return {
        "flow": flow,
        "flow-cosine": cosine,
        "flow-noise": scaled + "  time: 1000\n",
        "flow-sample": cosine.replace("target: velocity", "target: sample"),
        "diffusion": diffusion,
        "labelled": labelled.TABLE,
    }


def folders() -> dict[tuple[str, int], Callable[[Path], object]]:
    """Folders as the libraries save them, which state what the converted files above do not."""
    video = {**wan_vae.OLD, "z_dim": 16, "temperal_downsample": [False]}
    given = {name: value for name, value in video.items() if not name.startswith("latents")}
    image = {**unet2d.fields_of("as published"), "sample_size": (8, 12)}

    def unet(path: Path, **scheduler: object) -> None:
        unet2d.save(path, image)
        document = {"_class_name": "DDIMScheduler", "num_train_timesteps": 100, **scheduler}
        (path / "scheduler_config.json").write_text(json.dumps(document))

    return {
        ("masked_lm", 0): lambda path: masked_lm.save(path, masked_lm.fields_of("one head")),
        ("wan_vae", 0): lambda path: wan_vae.save(path, given),
        ("unet2d", 0): lambda path: unet(path, clip_sample_range=2.0),
        ("unet2d", 1): lambda path: unet(path, clip_sample=False),
    }


def _network(folder: Path, name: str) -> Path:
    """The checkpoint of a table of :func:`points`."""
    return folder / ("labelled.pt" if name == "labelled" else "points.pt")


def _table(folder: Path, name: str) -> dict[str, Any]:
    return {"mapping": str(folder / f"{name}.yaml")}


Schedule = Callable[[torch.optim.Optimizer], Any]
OPTIMISERS: dict[str, tuple[Callable[[torch.nn.Module], torch.optim.Optimizer], Schedule | None]] = {
    "sgd": (lambda net: SGD(decay_groups(net, 5e-3), lr=0.05, momentum=0.9, nesterov=True),
            lambda opt: lr_scheduler.MultiStepLR(opt, [4, 9, 16], gamma=0.5)),
    "dampened": (lambda net: SGD(net.parameters(), lr=0.05, momentum=0.9, dampening=0.5, weight_decay=5e-3),
                 lambda opt: lr_scheduler.SequentialLR(opt, [lr_scheduler.LinearLR(opt, 0.1, total_iters=8),
                                                             lr_scheduler.StepLR(opt, 4, 0.5)], [9])),
    "adamw": (lambda net: AdamW(decay_groups(net, 0.1), lr=3e-3),
              lambda opt: lr_scheduler.CosineAnnealingLR(opt, 20, eta_min=1e-4)),
    "amsgrad": (lambda net: Adam(net.parameters(), lr=3e-3, amsgrad=True, weight_decay=0.01),
                lambda opt: lr_scheduler.LinearLR(opt, 0.1, total_iters=9)),
    "rates": (lambda net: Adam([{**group, "lr": 10.0**-at} for at, group in enumerate(decay_groups(net, 0.0), 2)]),
              None),
    "plateau": (lambda net: AdamW(net.parameters()), lambda opt: lr_scheduler.ReduceLROnPlateau(opt, patience=3)),
    "late": (lambda net: AdamW(net.parameters()), None),
}  # fmt: skip
"""Optimizers and schedules; under "late", the last layer is trained later than the others."""


def optimizers() -> list[str]:
    """The names of the checkpoints with an optimizer."""
    return [*OPTIMISERS, *(["etth1"] if GOLDEN.is_dir() else [])]


def trained(name: str) -> dict[str, Any]:
    """A residual network's checkpoint after six steps of an optimizer."""
    net = randomised(residual_net.build()).train()
    make, schedule = OPTIMISERS[name]
    optimizer = make(net)
    moving = schedule(optimizer) if schedule is not None else None
    for at, (x, y) in enumerate(batches(6)):
        optimizer.zero_grad()
        for parameter in net.fc.parameters():
            parameter.requires_grad_(name != "late" or at > 2)
        loss = torch.nn.functional.cross_entropy(net(torch.tensor(x, dtype=torch.float32)), torch.tensor(y))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if moving is not None:
            moving.step(*([loss.item()] if name == "plateau" else []))
    state = {"scheduler": moving.state_dict()} if moving is not None else {}
    return {"model": net.state_dict(), "optimizer": stated(optimizer), **state, "global_step": 6}
