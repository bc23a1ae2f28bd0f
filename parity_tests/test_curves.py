"""Training goes on, and begins, as in PyTorch: the losses of whole runs, compared with `torch.optim` and its scheduler.

Both sides take the same batches with the same noise, in float64 and in float32; running freely, with their own orders,
noise and dropout, they reach the same level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import wdport
from wdport.cli.main import main
from wdport.models.keras_runtime import exact_float64
from wdport.optimizers.schedules import one_cycle
from wdport.optimizers.torch_like import Adam, TorchOptimizer
from wdport.uses.data.pipeline import transform_dataset
from wdport.uses.data.series import read_series
from wdport.uses.diffusion.loss import RandomBatch
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.reference import build_reference, training_loss
from wdport.uses.wavelets import WaveletTransform

SHARED = Path(__file__).parents[2] / "shared"
GOLDEN, SERIES = SHARED / "golden", SHARED / "data" / "ETT-small" / "ETTh1.csv"
NAME = "etth1-seq24-db2"
RATIO = 8.0
"""Of our error in float32 to PyTorch's."""

Record = Callable[[str, object], None]

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not (GOLDEN.is_dir() and SERIES.is_file()), reason="needs the shared data"),
]


class Batch(NamedTuple):
    """Clean coefficients and noise (B, C, F), and uniform numbers (B,), float64."""

    clean: np.ndarray
    noise: np.ndarray
    uniform: np.ndarray


@pytest.fixture
def exact() -> Iterator[None]:
    with jax.enable_x64(True), jax.default_matmul_precision("highest"), exact_float64():
        yield


def our_losses(model: Any, optimizer: TorchOptimizer, batches: list[Batch], dtype: str) -> np.ndarray:
    """The loss before every step."""
    trained = wdport.training_model(model)
    loss = trained.diffusion_loss
    fixed = [variable.value for variable in model.non_trainable_variables]
    optimizer.build(model.trainable_variables)

    def loss_of(values: Any, batch: Batch) -> Any:
        drawn = RandomBatch(batch.noise, batch.uniform)
        prediction, _ = model.stateless_call(values, fixed, list(loss.noisy(batch.clean, drawn)), training=False)
        return loss.total(loss.errors(prediction, batch.clean, drawn))

    @jax.jit
    def step(values: Any, state: Any, batch: Batch) -> Any:
        found, slopes = jax.value_and_grad(loss_of)(values, batch)
        return found, *optimizer.stateless_apply(state, slopes, values)

    values = [variable.value for variable in model.trainable_variables]
    state = [variable.value for variable in optimizer.variables]
    losses = []
    for batch in batches:
        given = Batch(*(jnp.asarray(each, dtype) for each in batch))
        found, values, state = step(values, state, given)
        losses.append(float(found))
    return np.array(losses)


def torch_losses(
    module: torch.nn.Module, config: Config, alpha_bar: np.ndarray, batches: list[Batch],
    optimizer: torch.optim.Optimizer, clip: float, scheduler: Any = None,
) -> np.ndarray:  # fmt: skip
    """The same by PyTorch, in the dtype of the module."""
    dtype = str(next(module.parameters()).dtype).removeprefix("torch.")
    losses = []
    for batch in batches:
        given = {name: each.astype(dtype) for name, each in batch._asdict().items()}
        loss, _ = training_loss(module, given, alpha_bar, config.level_lengths, config.prediction_target)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        losses.append(float(loss.detach()))
    return np.array(losses)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("name", [NAME, "exchange-seq24-qknorm"])
def test_float32_losses_after_migration_are_as_near_as_pytorchs(
    name: str, tmp_path: Path, record_property: Record
) -> None:
    """The five recorded batches and 15 more of the same kind, from the checkpoint's own moments."""
    golden = np.load(GOLDEN / f"{name}.golden.npz")
    made = wdport.convert(GOLDEN / f"{name}.ckpt", tmp_path / "a.keras", config=GOLDEN / f"{name}.config.yaml",
                          with_optimizer=True)  # fmt: skip
    assert made.optimizer is not None
    uniform = (golden["resume_t"] + 0.5) / 1000
    batches = [Batch(*map(np.float64, each))
               for each in zip(golden["resume_x0"], golden["resume_noise"], uniform, strict=True)]  # fmt: skip
    random = np.random.default_rng(0)
    batches += [Batch(batches[at % 5].clean, random.normal(size=batches[0].noise.shape), random.random(len(uniform[0])))
                for at in range(15)]  # fmt: skip
    settings = {"betas": (0.9, 0.999), "weight_decay": float(golden["resume_weight_decay"])}
    rate, clip = float(golden["resume_lr"]), float(golden["resume_clip_norm"])
    raw = torch.load(GOLDEN / f"{name}.ckpt", weights_only=False)
    weights = {key.removeprefix("model."): value.numpy() for key, value in raw["state_dict"].items()}
    alpha_bar = weights["alpha_bar_all"].astype(np.float64)

    def torchs(dtype: str) -> np.ndarray:
        module = build_reference(made.config, {key: value.copy() for key, value in weights.items()}, dtype)
        optimizer = torch.optim.AdamW(module.parameters())
        optimizer.load_state_dict(torch.load(GOLDEN / f"{name}.ckpt", weights_only=False)["optimizer_states"][0])
        for group in optimizer.param_groups:
            group.update(lr=rate, **settings)
        return torch_losses(module, made.config, alpha_bar, batches, optimizer, clip)

    def ours(policy: str) -> np.ndarray:
        model = wdport.load_model(made.output, policy)
        assert made.optimizer is not None
        optimizer = wdport.load_optimizer(made.optimizer.path, model, learning_rate=rate, settings=settings,
                                          clip_norm=clip)  # fmt: skip
        return our_losses(model, optimizer, batches, policy)

    wanted = torchs("float64")
    np.testing.assert_allclose(wanted[:5], golden["resume_losses"], rtol=1e-5)
    np.testing.assert_allclose(ours("float64"), wanted, rtol=1e-9)
    error, theirs = (float(np.sqrt(np.mean((found - wanted) ** 2)))
                     for found in (ours("float32"), torchs("float32")))  # fmt: skip
    record_property("errors in float32, ours and PyTorch's", [error, theirs])
    assert 0.0 < error < RATIO * theirs


class FromScratch(NamedTuple):
    """Torch's initial weights, the converted model, and all windows of the series."""

    weights: dict[str, np.ndarray]
    converted: Path
    config: Config
    windows: np.ndarray
    alpha_bar: np.ndarray


EPOCHS, BATCH, LARGEST, CLIP = 3, 512, 2e-3, 1.0


def from_scratch(folder: Path, seed: int, dropout: float) -> FromScratch:
    """PyTorch's module with Xavier-uniform weights, drawn by torch, saved and converted."""
    config = wdport.new_model(GOLDEN / f"{NAME}.config.yaml", SERIES).config
    torch.manual_seed(seed)
    state = wdport.convert(GOLDEN / f"{NAME}.ckpt", folder / "sizes.keras", config=GOLDEN / f"{NAME}.config.yaml",
                           force=True).config  # fmt: skip
    assert (state.level_lengths, state.embed_dim, state.num_layers) == (
        config.level_lengths, config.embed_dim, config.num_layers)  # fmt: skip
    raw = torch.load(GOLDEN / f"{NAME}.ckpt", weights_only=False)["state_dict"]
    module = build_reference(config, {key.removeprefix("model."): value.numpy() for key, value in raw.items()},
                             "float32")  # fmt: skip
    for name, parameter in module.named_parameters():
        with torch.no_grad():
            if name.endswith("level_position_embeddings"):
                parameter.copy_(torch.nn.functional.normalize(0.1 * torch.randn(parameter.shape), dim=-1))
            elif parameter.dim() == 2:
                torch.nn.init.xavier_uniform_(parameter)
            else:
                parameter.zero_()
    file = folder / f"begin{seed}.pt"
    torch.save(module.state_dict(), file)
    made = wdport.convert(file, config=GOLDEN / f"{NAME}.config.yaml", values={"dropout": str(dropout)}, force=True)
    series = read_series(SERIES).values
    windows = transform_dataset(series, WaveletTransform(24, "db2", "symmetric", 3)).coefficients
    weights = {name: value.numpy().copy() for name, value in module.state_dict().items()}
    return FromScratch(weights, made.output, made.config, windows, weights["alpha_bar_all"].astype(np.float64))


def tape(begin: FromScratch, epochs: int, seed: int = 0) -> list[Batch]:
    """Batches in the order of the epochs, with noise and times."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(epochs):
        order = random.permutation(len(begin.windows))
        for at in range(len(order) // BATCH):
            clean = begin.windows[order[at * BATCH : (at + 1) * BATCH]].astype(np.float64)
            found.append(Batch(clean, random.normal(size=clean.shape), random.random(BATCH)))
    return found


def torch_run(begin: FromScratch, batches: list[Batch], dtype: str, training: bool) -> np.ndarray:
    module = build_reference(begin.config, {name: value.copy() for name, value in begin.weights.items()}, dtype)
    module.train(training)
    optimizer = torch.optim.AdamW(module.parameters(), lr=LARGEST, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LARGEST, total_steps=len(batches))
    return torch_losses(module, begin.config, begin.alpha_bar, batches, optimizer, CLIP, schedule)


@pytest.mark.usefixtures("exact")
def test_a_run_from_scratch_has_pytorchs_curve(tmp_path: Path, record_property: Record) -> None:
    begin = from_scratch(tmp_path, 0, 0.0)
    batches = tape(begin, EPOCHS)
    cycle = one_cycle(len(batches), LARGEST)
    optimizer = Adam([{"lr": LARGEST, "weight_decay": 0.01}], rates=cycle.rate, momenta=cycle.beta1, clip_norm=CLIP)
    found = our_losses(wdport.load_model(begin.converted, "float64"), optimizer, batches, "float64")
    wanted = torch_run(begin, batches, "float64", False)
    worst = float(np.max(np.abs(found / wanted - 1.0)))
    record_property("first and last loss, largest relative difference", [*map(float, wanted[[0, -1]]), worst])
    assert wanted[-1] < 0.5 * wanted[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-7)


Curves = tuple[list[float], list[list[float]]]
"""Mean loss of every epoch: of `wdport train`, and of three runs of PyTorch."""

RUNS = 3
INTERVAL = 3.0 * (1.0 + 1.0 / RUNS) ** 0.5
"""Standard deviations of a run within which another run lies, around the mean of :data:`RUNS` of them."""


def train(*words: object) -> list[float]:
    """The mean loss of every epoch of `wdport train`, which a line of metrics.csv has for each."""
    folder = Path(str(words[-1]))
    assert main(["train", *map(str, words[:-1]), "-o", str(folder)]) == 0
    lines = (folder / "metrics.csv").read_text().splitlines()
    column = lines[0].split(",").index("loss")
    return [float(line.split(",")[column]) for line in lines[1:]]


def torch_curve(
    module: torch.nn.Module, count: int, loss_of: Callable[[torch.Tensor], torch.Tensor], epochs: int, size: int
) -> list[float]:
    """The mean loss of every epoch of a plain loop with AdamW and clipping; ``loss_of`` takes the rows of a batch."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01)
    module.train()
    means = []
    for _ in range(epochs):
        order, losses = torch.randperm(count), []
        for at in range(count // size):
            loss = loss_of(order[at * size : (at + 1) * size])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), CLIP)
            optimizer.step()
            losses.append(float(loss.detach()))
        means.append(float(np.mean(losses)))
    return means


OPTIONS = ("--lr", "1e-3", "--weight-decay", "0.01", "--clip", CLIP)


def unet_curves(folder: Path) -> Curves:
    """scikit-learn's digits, by diffusers' own model and scheduler."""
    diffusers = pytest.importorskip("diffusers")
    digits = pytest.importorskip("sklearn.datasets").load_digits().images[..., None].astype("float32") / 8.0 - 1.0
    kinds = {
        "sample_size": 8, "in_channels": 1, "out_channels": 1, "layers_per_block": 1, "norm_num_groups": 8,
        "block_out_channels": (32, 64), "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    }  # fmt: skip
    scheduler = diffusers.DDPMScheduler(beta_schedule="squaredcos_cap_v2")
    diffusers.UNet2DModel(**kinds).save_config(folder / "unet")
    scheduler.save_pretrained(folder / "unet")
    np.save(folder / "digits.npy", digits)
    epochs, size = 6, 64
    ours = train(folder / "digits.npy", "--config", folder / "unet", "--epochs", epochs, "--batch-size", size, *OPTIONS,
                 folder / "run")  # fmt: skip
    images = torch.from_numpy(np.moveaxis(digits, -1, 1).copy())
    curves = []
    for seed in range(RUNS):
        torch.manual_seed(seed)
        module = diffusers.UNet2DModel(**kinds)

        def loss_of(rows: torch.Tensor, module: Any = module) -> torch.Tensor:
            noise, times = torch.randn(images[rows].shape), torch.randint(0, 1000, (len(rows),))
            return torch.nn.functional.mse_loss(
                module(scheduler.add_noise(images[rows], noise, times), times).sample, noise
            )

        curves.append(torch_curve(module, len(images), loss_of, epochs, size))
    return ours, curves


def language_curves(folder: Path) -> Curves:
    """Bytes of Python's own documentation, by transformers' model and its collator's masks."""
    transformers = pytest.importorskip("transformers")
    fields = {
        "vocab_size": 259, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 256, "mask_token_id": 257,
        "bos_token_id": None, "eos_token_id": 258,
    }  # fmt: skip
    config = transformers.EuroBertConfig(**fields)
    (folder / "lm").mkdir()
    config.architectures = ["EuroBertForMaskedLM"]
    config.save_pretrained(folder / "lm")
    text = "".join(topics[name] for name in sorted(topics))[: 64 * 2048].encode("ascii", "replace")
    tokens = np.frombuffer(text, np.uint8).reshape(-1, 64).astype(np.int64)
    np.save(folder / "tokens.npy", tokens)
    epochs, size = 4, 32
    ours = train(folder / "tokens.npy", "--config", folder / "lm", "--epochs", epochs, "--batch-size", size, *OPTIONS,
                 folder / "run")  # fmt: skip
    every = torch.from_numpy(tokens)
    curves = []
    for seed in range(RUNS):
        torch.manual_seed(seed)
        module = transformers.EuroBertForMaskedLM(config)

        def loss_of(rows: torch.Tensor, module: Any = module) -> torch.Tensor:
            inputs, labels = every[rows].clone(), every[rows].clone()
            hidden = torch.rand(inputs.shape) < 0.15
            labels[~hidden] = -100
            share = torch.rand(inputs.shape)
            inputs[hidden & (share < 0.8)] = 257
            other = hidden & (share >= 0.9)
            inputs[other] = torch.randint(0, 259, (int(other.sum()),))
            return module(input_ids=inputs, labels=labels).loss

        curves.append(torch_curve(module, len(every), loss_of, epochs, size))
    return ours, curves


def series_curves(folder: Path) -> Curves:
    """ETTh1's windows, by the reference of WaveletDiff, with its dropout; every run has its own weights."""
    epochs, size = 3, 256
    begin = from_scratch(folder, RUNS, 0.1)
    np.save(folder / "states.npy", begin.windows.astype("float32"))
    ours = train(folder / "states.npy", "--resume", begin.converted, "--epochs", epochs, "--batch-size", size, *OPTIONS,
                 folder / "run")  # fmt: skip
    curves = []
    for seed in range(RUNS):
        other = from_scratch(folder, seed, 0.1)
        module = build_reference(other.config, {name: value.copy() for name, value in other.weights.items()}, "float32")

        def loss_of(rows: torch.Tensor, module: Any = module, other: FromScratch = other) -> torch.Tensor:
            clean = other.windows[rows.numpy()].astype(np.float32)
            batch = {
                "clean": clean,
                "noise": torch.randn(clean.shape).numpy(),
                "uniform": torch.rand(len(rows)).numpy(),
            }
            return training_loss(module, batch, other.alpha_bar, other.config.level_lengths, "noise")[0]

        torch.manual_seed(seed)
        curves.append(torch_curve(module, len(other.windows), loss_of, epochs, size))
    return ours, curves


@pytest.mark.parametrize("family", [unet_curves, language_curves, series_curves])
def test_training_has_the_curve_of_three_runs_of_pytorch(
    family: Callable[[Path], Curves], tmp_path: Path, record_property: Record
) -> None:
    """Each with its own weights, order, noise and dropout, by the loop that the library's users write."""
    ours, theirs = family(tmp_path)
    record_property("ours, PyTorch's", [ours, theirs])
    logs = np.log(theirs)
    deviation = float(np.sqrt(np.mean(np.var(logs, axis=0, ddof=1))))
    assert np.mean(theirs, axis=0)[-1] < 0.7 * np.mean(theirs, axis=0)[0], "it learns nothing"
    np.testing.assert_allclose(np.log(ours), logs.mean(axis=0), rtol=0, atol=INTERVAL * deviation)
