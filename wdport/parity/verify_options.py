"""The options of `wdport verify`, of the pytest plugin and of the action, each declared here and nowhere else; the
files that `--repro` writes.

`make options` writes them into the plugin, the action and the documentation.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from wdport.files.outputs import writable
from wdport.limits import MAX_CASES, MAX_SEED
from wdport.options import (
    DATA,
    FORCE,
    INPUTS,
    JSON,
    KEY,
    MAPPING,
    MODEL,
    NORM_STATS,
    REQUIRED,
    SHA256,
    TRANSFORM,
    Argument,
    CommandOnly,
    Elsewhere,
    PathText,
    Unrecorded,
    option,
    shared,
    switch,
)

REPRO_ARRAYS: Final = "layer.npz"
REPRO_SCRIPT: Final = "repro.py"
REPRO_KINDS: Final = {REPRO_ARRAYS: "layer", REPRO_SCRIPT: "script"}
"""The kind of each file in :data:`wdport.files.outputs.OURS`."""


def require_repro(folder: str | os.PathLike[str] | None) -> None:
    """Refuse a folder in which another file than an older one of these has one of their names."""
    for name, kind in REPRO_KINDS.items():
        if folder is not None and os.path.lexists(path := Path(folder, name)):
            writable(path, force=False, option=None, kind=kind)


NEEDS_MODEL: Final = Unrecorded("needs the PyTorch model to run")
OWN_INPUTS: Final = Unrecorded("a recording holds its own inputs")
CONFIGURES: Final = Unrecorded("a recording does not hold the configuration that these are for")
"""Why a recording excludes options."""


@dataclass(frozen=True)
class PairOptions:
    """What is compared, and on what inputs."""

    converted: Annotated[PathText, Argument(), Elsewhere(each_pair=True)] = option(
        "The converted file of each checkpoint or recording. [default: the .keras file next to it]",
        default=REQUIRED, files="converted")  # fmt: skip
    checkpoint: Annotated[PathText | None, Argument(), Elsewhere(each_pair=True)] = option(
        "The PyTorch checkpoint of the port to test.", files="checkpoint")  # fmt: skip
    mapping: PathText | None = shared(MAPPING)
    config: Annotated[PathText | None, CONFIGURES] = option("Training configuration, to compare with the one in "
                                                            "CONVERTED.", files="table")  # fmt: skip
    values: Annotated[tuple[tuple[str, str], ...], CONFIGURES] = option(
        "One configuration value, such as num_heads=8.", "KEY=VALUE", default=(), group="model")  # fmt: skip
    norm_stats: Annotated[PathText | None, CONFIGURES] = shared(NORM_STATS)
    data: Annotated[PathText | None, CONFIGURES] = shared(DATA)
    transform: Annotated[str | None, CONFIGURES] = shared(TRANSFORM)
    model: str | None = shared(MODEL)
    inputs: tuple[str, ...] = shared(INPUTS, ())
    key: str | None = shared(KEY)
    sha256: Annotated[str | None, Elsewhere("The SHA-256 that the checkpoint must have.", each_pair=True)] = shared(
        SHA256
    )
    full: Annotated[bool, NEEDS_MODEL] = switch("Also compare bfloat16, gradients, optimizer steps and sampling.")
    resume: Annotated[bool, NEEDS_MODEL] = switch("Also compare training steps from the converted optimizer's state.",
                                                  names=("--with-optimizer",), former=("--resume",))  # fmt: skip
    train: Annotated[bool, NEEDS_MODEL] = switch("Also compare both models in training mode: gradients, dropout, batch "
                                                 "statistics, and what is trained.")  # fmt: skip
    schedule: str | None = option("Class of the checkpoint's learning-rate schedule, for --with-optimizer.",
                                  "MODULE:CLASS", names=("--schedule-class",), former=("--schedule",))  # fmt: skip
    seed: Annotated[int, OWN_INPUTS] = option("Random seed of the inputs.", default=0, bounds=(0, MAX_SEED))
    cases: Annotated[int, OWN_INPUTS] = option("Compare on N additional random inputs.",
                                               "N", default=0, bounds=(0, MAX_CASES))  # fmt: skip
    fresh: Annotated[bool, NEEDS_MODEL] = switch("Also compare on new inputs and weights, with the port in a separate "
                                                 "process. [default with --policy]")  # fmt: skip
    reference: Annotated[str | None, NEEDS_MODEL] = option("Your own PyTorch model, instead of the built-in reference.",
                                                           "MODULE:FUNCTION", group="model")  # fmt: skip
    against: Annotated[PathText | None, Elsewhere(each_pair=True)] = option(
        "A recording made by `wdport record`, instead of CHECKPOINT; does not need torch.", files=(".npz",)
    )


@dataclass(frozen=True)
class RunOptions:
    """How the comparison is judged, and what is written; ``json_file`` is "-" for standard output."""

    no_fresh: bool = switch("With a policy, skip the comparison on new inputs and weights.", after="fresh")
    json_file: Annotated[str | None, CommandOnly()] = shared(JSON)
    html: Annotated[str | None, CommandOnly()] = option("Write an HTML report.", files=(".html",))
    junit: Annotated[str | None, CommandOnly()] = option("Write a JUnit report for CI servers.",
                                                         files=(".xml",), group="outputs")  # fmt: skip
    markdown: Annotated[str | None, CommandOnly()] = option("Write a Markdown summary for CI pages and pull requests.",
                                                            files=(".md",))  # fmt: skip
    policy: str | None = option("Bounds and waivers, such as parity.toml.", files=(".toml",))
    baseline: Annotated[str | None, Elsewhere(each_pair=True)] = option(
        "Errors of an earlier run, such as parity-baseline.json.", files=(".json",))  # fmt: skip
    update_baseline: Annotated[bool, CommandOnly()] = switch("Write this run's errors to the baseline.",
                                                             group="outputs")  # fmt: skip
    no_canary: bool = switch("With a policy or baseline, skip the known-fault check.")
    repro: Annotated[str | None, CommandOnly()] = option("Write the first faulty layer with its weights and inputs, "
                                                         "and a script that runs it.",
                                                         "DIR", files="folder", group="outputs")  # fmt: skip
    force: Annotated[bool, CommandOnly()] = shared(FORCE, False)
