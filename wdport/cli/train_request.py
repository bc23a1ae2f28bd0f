"""The arguments and options of `wdport train`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wdport.model import PUBLIC, SCHEDULES
from wdport.options import (
    DEVICES,
    JSON,
    KEY,
    MODEL,
    NO_CONFIG,
    OWN_MAPPING,
    REQUIRED,
    SET,
    SHA256,
    operand,
    option,
    shared,
    switch,
)
from wdport.shared_types import POLICIES

TORCH: Final = (".ckpt", ".pt", ".pth", ".bin")
ARCHIVES: Final = (".tar", ".tar.gz", ".tgz")
"""Suffixes of PyTorch checkpoints, and of archives of experiments."""


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """The command's arguments and options; None where the default depends on others."""

    data: Path = operand(files="series")
    resume: str | None = option("Converted model to train, with the optimizer's file (convert --with-optimizer) if "
                                "there is one next to it; or a PyTorch checkpoint.",
                                "MODEL|CHECKPOINT", files="model")  # fmt: skip
    config: str | None = option("Training configuration (YAML) of CHECKPOINT or, without --resume, of the new model. A "
                                "new model may also have a config.json of diffusers or transformers, or a folder with "
                                "it.", files="table")  # fmt: skip
    values: dict[str, str] = shared(SET, REQUIRED)
    folder: Path = option("Folder of the run; an unfinished run in it is resumed.", "FOLDER",
                          default=REQUIRED, names=("-o", "--output"), files="folder", group="outputs")  # fmt: skip
    transform: str | None = option("How windows are computed from DATA: zscore, log1p-volume, ohlc-atr, or your own "
                                   "MODULE:CLASS.  [default: the model's; for a new model, zscore]",
                                   "NAME")  # fmt: skip
    condition: str | None = option("The condition of every state (n, ...), for a model that takes one.  [default: "
                                   "computed from DATA, if it contains prices]", files=(".npy",))  # fmt: skip
    loss: str | None = option("Train with this loss between outputs and --targets: mse, cross_entropy, or your own "
                              "MODULE:FUNCTION.  [default: the objective of the model's family]", "NAME")  # fmt: skip
    targets: str | None = option("Targets (n, ...) of all samples, for --loss.", files=(".npy",))
    mask_rate: float = option("Fraction of the tokens to mask, for a masked language model.", "SHARE", default=0.15)
    mask_span: int = option("Number of consecutive tokens to mask together.", "N", default=1, bounds=(1, 64))
    length: int = option("Length in tokens of the samples into which a text is divided.",
                         "N", default=128, bounds=(2, 1 << 20))  # fmt: skip
    recipe: str | None = option("Train as the model's public script does: steps drawn from the Min-SNR distribution, "
                                "OneCycle to 1e-3 or the file's cosine_warmup, weight decay 1e-5, gradients clipped at "
                                "1.", "public", choices=(PUBLIC,))  # fmt: skip
    epochs: int | None = option("Total number of epochs.  [default: --config's, or 1]", bounds=(1, 1 << 24))
    batch_size: int | None = option("Batch size, in states.  [default: --config's, or 32]", "N", bounds=(1, 1 << 20))
    gradient_accumulation_steps: int | None = option("Number of batches whose mean gradient one optimizer step uses.",
                                                     "N", bounds=(2, 1 << 16))  # fmt: skip
    lr: float | None = option("Learning rate.  [default: the optimizer's schedule; for a new optimizer, --config's or "
                              "1e-4]", "RATE")  # fmt: skip
    schedule: str | None = option("Learning-rate schedule of a new optimizer, with --lr as its maximum.  [default: "
                                  "--config's, or constant]", choices=SCHEDULES)  # fmt: skip
    warmup: int | None = option("Number of warm-up steps of a cosine schedule.", "N", bounds=(1, 1 << 32))
    weight_decay: float | None = option("AdamW's weight decay.  [default: the optimizer's, or 0.01]")
    clip: float | None = option("Clip the global norm of the gradients to this value.", "NORM")
    ema: float | None = option("Also keep a moving average of the weights, with a decay such as 0.999.", "DECAY")
    min_snr: float | None = option("Gamma of Min-SNR weighting, such as 5.", "GAMMA")
    energy: float | None = option("Weight of the energy term of the loss.  [default: --config's, or 0]")
    drop_condition: float = option("Probability of dropping a state's condition, as guidance requires.",
                                   "P", default=0.0)  # fmt: skip
    validation_split: float = option("Fraction of the samples, taken from the end, to hold out for validation.",
                                     "SHARE", default=0.0)  # fmt: skip
    patience: int | None = option("Stop after N epochs without a lower validation loss (--validation-split).",
                                  "N", bounds=(1, 1 << 24))  # fmt: skip
    dtype: str = option("Keras dtype policy of the network. With mixed_bfloat16 it computes in bfloat16; weights, "
                        "noise and transform are float32.",
                        default="float32", choices=tuple(name for name in POLICIES if name != "bfloat16"))  # fmt: skip
    seed: int = option("Random seed for the order of the data, noise, times, dropout, and the weights of a new model.",
                       default=0, bounds=(0, (1 << 31) - 1))  # fmt: skip
    save_every: int | None = option("Also save the state every N steps.  [default: after every epoch]",
                                    "N", bounds=(1, 1 << 32), group="outputs")  # fmt: skip
    stream: bool | None = option("Read the data batch by batch, or keep them on the device.  [default: depends on "
                                 "their size]", names=("--stream/--no-stream",))  # fmt: skip
    devices: str | None = shared(DEVICES)
    distributed: str | None = option("Run as process I (0 to N-1) of N that share every batch; process 0 listens at "
                                     "HOST:PORT and writes the files. auto reads these values from the environment, "
                                     "such as Slurm's.", "HOST:PORT,I/N")  # fmt: skip
    shard_weights: bool = switch("Also divide weights and moments among the devices.")
    orbax: bool = switch("Save the state as an Orbax checkpoint, to which every process writes its part.",
                         group="outputs")  # fmt: skip
    tensorboard: bool = switch("Also write the metrics as TensorBoard events.", group="outputs")
    force: bool = switch("Start again in a folder that contains another run, and replace the file of --json.")
    mapping: str | None = shared(OWN_MAPPING)
    function: str | None = shared(MODEL)
    key: str | None = shared(KEY)
    no_config: bool = shared(NO_CONFIG, False)
    sha256: str | None = shared(SHA256)
    json_file: str | None = shared(JSON)

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
