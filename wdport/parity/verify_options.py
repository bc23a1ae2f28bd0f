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
    SHA256,
    TRANSFORM,
    Argument,
    CommandOnly,
    Elsewhere,
    Option,
    PathText,
    Unrecorded,
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

    converted: Annotated[PathText, Option(
        "The converted file of each checkpoint or recording. [default: the .keras file next to it]",
        files="converted"), Argument(), Elsewhere(each_pair=True)]  # fmt: skip
    checkpoint: Annotated[PathText | None, Option(
        "The PyTorch checkpoint of the port to test.",
        files="checkpoint"), Argument(), Elsewhere(each_pair=True)] = None  # fmt: skip
    mapping: Annotated[PathText | None, MAPPING] = None
    config: Annotated[PathText | None, Option(
        "Training configuration, to compare with the one in CONVERTED.", files="table"), CONFIGURES] = None  # fmt: skip
    values: Annotated[tuple[tuple[str, str], ...], Option(
        "One configuration value, such as num_heads=8; repeatable.",
        "KEY=VALUE", group="model"), CONFIGURES] = ()  # fmt: skip
    norm_stats: Annotated[PathText | None, NORM_STATS, CONFIGURES] = None
    data: Annotated[PathText | None, DATA, CONFIGURES] = None
    transform: Annotated[str | None, TRANSFORM, CONFIGURES] = None
    model: Annotated[str | None, MODEL] = None
    inputs: Annotated[tuple[str, ...], INPUTS] = ()
    key: Annotated[str | None, KEY] = None
    sha256: Annotated[str | None,
        SHA256, Elsewhere("The SHA-256 that the checkpoint must have.", each_pair=True)] = None  # fmt: skip
    full: Annotated[bool, Option(
        "Also compare bfloat16, gradients, optimizer steps and sampling."), NEEDS_MODEL] = False  # fmt: skip
    resume: Annotated[bool, Option(
        "Also compare training steps from the converted optimizer's state.",
        names=("--with-optimizer",), former=("--resume",)), NEEDS_MODEL] = False  # fmt: skip
    train: Annotated[bool, Option(
        "Also compare both models in training mode: gradients, dropout, batch statistics, and trained weights."),
        NEEDS_MODEL] = False  # fmt: skip
    schedule: Annotated[str | None, Option(
        "Class of the checkpoint's learning-rate schedule, for --with-optimizer.",
        "MODULE:CLASS", names=("--schedule-class",), former=("--schedule",))] = None  # fmt: skip
    seed: Annotated[int, Option("Random seed of the inputs.", bounds=(0, MAX_SEED)), OWN_INPUTS] = 0
    cases: Annotated[int, Option("Compare on N additional random inputs.", "N", bounds=(0, MAX_CASES)), OWN_INPUTS] = 0
    fresh: Annotated[bool, Option(
        "Also compare on new inputs and weights, with the port in a separate process. [default with --policy]"),
        NEEDS_MODEL] = False  # fmt: skip
    reference: Annotated[str | None, Option(
        "Your own PyTorch model, instead of the built-in reference.",
        "MODULE:FUNCTION", group="model"), NEEDS_MODEL] = None  # fmt: skip
    against: Annotated[PathText | None, Option(
        "A recording made by `wdport record`, instead of CHECKPOINT; does not need torch.",
        files=(".npz",)), Elsewhere(each_pair=True)] = None  # fmt: skip


@dataclass(frozen=True)
class RunOptions:
    """How the comparison is judged, and what is written; ``json_file`` is "-" for standard output."""

    no_fresh: Annotated[bool, Option(
        "With a policy, skip the comparison on new inputs and weights.", after="fresh")] = False  # fmt: skip
    json_file: Annotated[str | None, JSON, CommandOnly()] = None
    html: Annotated[str | None, Option("Write an HTML report.", files=(".html",)), CommandOnly()] = None
    junit: Annotated[str | None, Option(
        "Write a JUnit report for CI servers.", files=(".xml",), group="outputs"), CommandOnly()] = None  # fmt: skip
    markdown: Annotated[str | None, Option(
        "Write a Markdown summary for CI pages and pull requests.", files=(".md",)), CommandOnly()] = None  # fmt: skip
    policy: Annotated[str | None, Option("File with bounds and waivers, such as parity.toml.", files=(".toml",))] = None
    baseline: Annotated[str | None, Option(
        "File with the errors of an earlier run, such as parity-baseline.json.",
        files=(".json",)), Elsewhere(each_pair=True)] = None  # fmt: skip
    update_baseline: Annotated[bool, Option(
        "Write this run's errors to the baseline.", group="outputs"), CommandOnly()] = False  # fmt: skip
    no_canary: Annotated[bool, Option("With a policy or baseline, skip the known-fault check.")] = False
    repro: Annotated[str | None, Option(
        "Write the first faulty layer with its weights and inputs, and a script that runs it.",
        "DIR", files="folder", group="outputs"), CommandOnly()] = None  # fmt: skip
    force: Annotated[bool, FORCE, CommandOnly()] = False
