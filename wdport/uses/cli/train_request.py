"""The arguments and options of `wdport train`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from wdport.base.options import DEVICES, JSON, KEY, MODEL, NO_CONFIG, OWN_MAPPING, SET, SHA256, Operand, Option
from wdport.base.shared_types import POLICIES
from wdport.models.interface import MASK_RATE, MAX_SPAN, PUBLIC, SCHEDULES

TORCH: Final = (".ckpt", ".pt", ".pth", ".bin")
ARCHIVES: Final = (".tar", ".tar.gz", ".tgz")
"""Suffixes of PyTorch checkpoints, and of archives of experiments."""


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """The command's arguments and options; None where the default depends on others."""

    data: Annotated[Path, Operand(files="series")]
    resume: Annotated[str | None, Option(
        "Converted model to train, with the optimizer's file (convert --with-optimizer) if there is one next to it; "
        "or a PyTorch checkpoint.", "MODEL|CHECKPOINT", files="model")] = None  # fmt: skip
    config: Annotated[str | None, Option(
        "Training configuration (YAML) of CHECKPOINT or, without --resume, of the new model. For a new model, it may "
        "also be a config.json of diffusers or transformers, or a folder with one.", files="table")] = None  # fmt: skip
    values: Annotated[dict[str, str], SET]
    folder: Annotated[Path, Option(
        "Folder of the run; an unfinished run in it is resumed.",
        "FOLDER", names=("-o", "--output"), files="folder", group="outputs")]  # fmt: skip
    transform: Annotated[str | None, Option(
        "How windows are computed from DATA: zscore, log1p-volume, ohlc-atr, or your own MODULE:CLASS.  [default: the "
        "model's; for a new model, zscore]", "NAME")] = None  # fmt: skip
    condition: Annotated[str | None, Option(
        "Conditions (n, ...), one for each state, for a model that takes a condition.  [default: computed from DATA, "
        "if it contains prices]", files=(".npy",))] = None  # fmt: skip
    loss: Annotated[str | None, Option(
        "Train with this loss between outputs and --targets: mse, cross_entropy, or your own MODULE:FUNCTION.  "
        "[default: the objective of the model's family]", "NAME")] = None  # fmt: skip
    targets: Annotated[str | None, Option("Targets (n, ...) of all samples, for --loss.", files=(".npy",))] = None
    mask_rate: Annotated[float, Option(
        "Fraction of the tokens to mask, for a masked language model.",
        "SHARE", bounds="above 0 and below 1")] = MASK_RATE  # fmt: skip
    mask_span: Annotated[int, Option("Number of consecutive tokens to mask together.", "N", bounds=(1, MAX_SPAN))] = 1
    length: Annotated[int, Option(
        "Length in tokens of the samples into which a text is divided.", "N", bounds=(2, 1 << 20))] = 128  # fmt: skip
    recipe: Annotated[str | None, Option(
        "Train as the model's public script does: steps drawn from the Min-SNR distribution, OneCycle to 1e-3 or the "
        "configuration's cosine_warmup, weight decay 1e-5, gradients clipped to a norm of 1.",
        "public", choices=(PUBLIC,))] = None  # fmt: skip
    epochs: Annotated[int | None, Option(
        "Total number of epochs.  [default: --config's, or 1]", bounds=(1, 1 << 24))] = None  # fmt: skip
    batch_size: Annotated[int | None, Option(
        "Batch size, in states.  [default: --config's, or 32]", "N", bounds=(1, 1 << 20))] = None  # fmt: skip
    gradient_accumulation_steps: Annotated[int | None, Option(
        "Number of batches over which the gradient of one optimizer step is averaged.",
        "N", bounds=(2, 1 << 16))] = None  # fmt: skip
    lr: Annotated[float | None, Option(
        "Learning rate.  [default: the optimizer's schedule; for a new optimizer, --config's or 1e-4]",
        "RATE", bounds="above 0")] = None  # fmt: skip
    schedule: Annotated[str | None, Option(
        "Learning-rate schedule of a new optimizer, with --lr as its maximum.  [default: --config's, or constant]",
        choices=SCHEDULES)] = None  # fmt: skip
    warmup: Annotated[int | None, Option(
        "Number of warm-up steps of a cosine schedule.", "N", bounds=(1, 1 << 32))] = None  # fmt: skip
    weight_decay: Annotated[float | None, Option(
        "AdamW's weight decay.  [default: the optimizer's, or 0.01]", bounds="from 0")] = None  # fmt: skip
    clip: Annotated[float | None, Option(
        "Clip the global norm of the gradients to this value.", "NORM", bounds="above 0")] = None  # fmt: skip
    ema: Annotated[float | None, Option(
        "Also keep a moving average of the weights, with a decay such as 0.999.",
        "DECAY", bounds="above 0 and below 1")] = None  # fmt: skip
    min_snr: Annotated[float | None, Option(
        "Gamma of Min-SNR weighting, such as 5.", "GAMMA", bounds="above 0")] = None  # fmt: skip
    energy: Annotated[float | None, Option(
        "Weight of the energy term of the loss.  [default: --config's, or 0]", bounds="from 0")] = None  # fmt: skip
    drop_condition: Annotated[float, Option(
        "Probability of dropping a state's condition, as guidance requires.",
        "P", bounds="from 0 and below 1")] = 0.0  # fmt: skip
    validation_split: Annotated[float, Option(
        "Fraction of the samples, taken from the end, to hold out for validation.",
        "SHARE", bounds="from 0 and below 1")] = 0.0  # fmt: skip
    patience: Annotated[int | None, Option(
        "Stop after N epochs without a lower validation loss (--validation-split).",
        "N", bounds=(1, 1 << 24))] = None  # fmt: skip
    dtype: Annotated[str, Option(
        "Keras dtype policy of the network. With mixed_bfloat16 it computes in bfloat16; weights, noise and transform "
        "are float32.", choices=tuple(name for name in POLICIES if name != "bfloat16"))] = "float32"  # fmt: skip
    seed: Annotated[int, Option(
        "Random seed for noise, times, dropout, the order of the data, and the weights of a new model.",
        bounds=(0, (1 << 31) - 1))] = 0  # fmt: skip
    save_every: Annotated[int | None, Option(
        "Also save the state every N batches.  [default: after every epoch]",
        "N", bounds=(1, 1 << 32), group="outputs")] = None  # fmt: skip
    stream: Annotated[bool | None, Option(
        "Read the data batch by batch, or keep it on the device.  [default: depends on its size]",
        names=("--stream/--no-stream",))] = None  # fmt: skip
    devices: Annotated[str | None, DEVICES] = None
    distributed: Annotated[str | None, Option(
        "Run as process I (0 to N-1) of N that share every batch; process 0 listens on HOST:PORT and writes the "
        "files. With 'auto', the environment states these values, for example under Slurm.",
        "HOST:PORT,I/N")] = None  # fmt: skip
    shard_weights: Annotated[bool, Option("Also divide weights and moments among the devices.")] = False
    orbax: Annotated[bool, Option(
        "Save the state as an Orbax checkpoint, to which every process writes its part.",
        group="outputs")] = False  # fmt: skip
    tensorboard: Annotated[bool, Option("Also write the metrics as TensorBoard events.", group="outputs")] = False
    force: Annotated[bool, Option(
        "Start again in a folder that contains another run, and replace the file of --json.")] = False  # fmt: skip
    mapping: Annotated[str | None, OWN_MAPPING] = None
    function: Annotated[str | None, MODEL] = None
    key: Annotated[str | None, KEY] = None
    no_config: Annotated[bool, NO_CONFIG] = False
    sha256: Annotated[str | None, SHA256] = None
    json_file: Annotated[str | None, JSON] = None

    @property
    def name(self) -> str:
        """What is trained."""
        return Path(self.resume or self.config or "").name


def is_checkpoint(path: str) -> bool:
    """Whether a path is a PyTorch checkpoint or an experiment with one, by its suffix or what the folder has."""
    place = Path(path)
    if place.is_dir():
        with suppress(OSError):  # raised again when the folder is opened
            return any(name.suffix.lower() in TORCH for name in place.iterdir())
    return place.suffix.lower() in TORCH or place.name.lower().endswith(ARCHIVES)
