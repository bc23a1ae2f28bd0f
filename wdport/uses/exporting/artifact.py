"""Write compiled programs, weights and facts to one file: an uncompressed zip that `loader.py` reads.

Members: ``facts.json``; ``weights.bin``, the arrays one after another in the order of ``facts["weights"]``; and
``NAME.program`` for every program, as ``jax.export`` serialises it. No dates, so equal contents give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np

from wdport.base.errors import InputError
from wdport.base.shared_types import Count, Number, Positive, Sha256, about
from wdport.checkpoint.error_context import located
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.strict_json import strict_json
from wdport.compare.findings import GateFacts
from wdport.files.model_target import Needed, Target, file_target
from wdport.files.sealed_archive import sealed_archive
from wdport.files.zip_seal import digests_in, member_sha256
from wdport.models.interface import Array


class SamplerFacts(TypedDict):
    """The sampler in an exported file."""

    name: Annotated[str, about("Name of the sampler.")]
    eta: Annotated[float, about("Eta of DDIM: the noise that each step adds, as a fraction of DDPM's; 0 for none.")]
    steps: Annotated[list[int], about("Diffusion steps, in the order in which they are run.")]
    slots: Annotated[Count, about(
        "Number of steps that add noise, which is the size of the first axis of the noise.")]  # fmt: skip
    count: NotRequired[Annotated[Positive | None, about(
        "Requested number of steps; null for the sampler's default.")]]  # fmt: skip
    spacing: NotRequired[Annotated[str | None, about(
        "Requested spacing of the steps; null for the default.")]]  # fmt: skip


class WeightFacts(TypedDict):
    """One array of the weights."""

    dtype: Annotated[str, about("Dtype of the array.")]
    shape: Annotated[list[Count], about("Shape of the array.")]


class ArrayFacts(TypedDict):
    """An input or output of a program."""

    name: Annotated[str, about("Name of the array.")]
    dtype: Annotated[str, about("Dtype of the array.")]
    shape: Annotated[list[Count | str], about(
        "Shape of the array; a size that may differ between calls is a string, such as `b` or `4*t - 3`.")]  # fmt: skip


class ProgramFacts(TypedDict):
    """One of the programs of a network."""

    inputs: Annotated[list[ArrayFacts], about(
        "Inputs of the program, in order, after the weights, which are not listed.")]  # fmt: skip
    outputs: Annotated[list[ArrayFacts], about("Outputs of the program, in order.")]


class ComparedFacts(TypedDict):
    """What ``wdport export --verify`` compared with the model before it wrote the file."""

    model: Annotated[Sha256, about("SHA-256 of the converted file.")]
    members: Annotated[dict[str, Sha256], about(
        "SHA-256 of the weights and of every program that was compared, by the name of the member in the "
        "file.")]  # fmt: skip
    programs: Annotated[dict[str, Number], about(
        "For every program, the largest error of its outputs relative to the model in float64, as a multiple of the "
        "model's own error in its dtype.")]  # fmt: skip
    bound: Annotated[Number, about("Largest multiple that passes.")]
    inputs: Annotated[list[str], about("Descriptions of the inputs that were compared.")]
    device: Annotated[str, about("The device on which the programs ran.")]


class ConditionFacts(TypedDict):
    """A conditioning input with one value per sample."""

    name: Annotated[str, about("Name of the input, such as `labels` or `scale`.")]
    kind: Annotated[Literal["class", "positive", "real"], about(
        "`class`: whole numbers from 0 to `classes` - 1. `positive`: positive numbers. `real`: any "
        "numbers.")]  # fmt: skip
    shape: Annotated[list[Positive], about("Shape of the value for one sample.")]


class ExportFacts(TypedDict):
    """Facts about an exported file. Those about a denoiser or sampler also include the sizes of the model family, such
    as the number of features."""

    format: Annotated[Literal[1], about("Version number of the format.")]
    what: Annotated[Literal["denoiser", "sampler", "network"], about("What was exported.")]
    wdport: Annotated[str, about("Version of wdport that wrote the file.")]
    jax: Annotated[str, about("Version of JAX that exported the programs.")]
    platforms: Annotated[list[Literal["cpu", "cuda", "rocm", "tpu"]], about(
        "Platforms on which the programs run.")]  # fmt: skip
    batch: Annotated[Positive | None, about("Number of samples per call; null if any number is possible.")]
    dtype: Annotated[Literal["float32", "float64"], about(
        "Dtype of states and predictions, and of a network's floating-point inputs.")]  # fmt: skip
    precision: Annotated[Literal["highest", "default"], about("Precision of float32 matrix products and convolutions.")]
    classes: NotRequired[Annotated[Positive, about("Number of classes; absent for a model without labels.")]]
    condition: NotRequired[Annotated[ConditionFacts, about(
        "The conditioning input of a denoiser or sampler, which is its last input; absent for a model without "
        "one.")]]  # fmt: skip
    programs: NotRequired[Annotated[dict[str, ProgramFacts], about(
        "The programs of a network by name; absent for a denoiser or sampler.")]]  # fmt: skip
    target: NotRequired[Annotated[str, about(
        "What the network of a denoiser or sampler predicts, such as `noise`, `sample` or `velocity`; absent for a "
        "network.")]]  # fmt: skip
    compute_dtype: Annotated[str, about("Dtype in which the Keras model computes.")]
    pad_widths: NotRequired[Annotated[Positive, about(
        "Only in files from earlier releases, which padded widths with zeros to a multiple of this "
        "number.")]]  # fmt: skip
    model: Annotated[dict[str, object], about(
        "Configuration of the model; the model family defines its meaning.")]  # fmt: skip
    sampler: NotRequired[Annotated[SamplerFacts, about("The sampler; absent for a denoiser or network.")]]
    compared: NotRequired[Annotated[ComparedFacts, about("What was compared with the model; absent if nothing was.")]]
    weights: Annotated[list[WeightFacts], about("The arrays of `weights.bin`, in order.")]


@dataclass(frozen=True)
class VerificationDocument:
    """What ``wdport verify --json`` prints for an exported file, and ``wdport export --verify --json`` if that file
    differs."""

    passed: Annotated[bool, about("Whether everything was compared and matches.")]
    complete: Annotated[bool, about("Whether everything that had to be compared was compared.")]
    exit_code: Annotated[Literal[0, 1, 6], about("Exit code of the command.")]
    gates: Annotated[Sequence[GateFacts], about("The gates.")]
    model: Annotated[str, about("Path of the converted file.")]
    exported: Annotated[str, about("Path of the exported file.")]
    digests: Annotated[Mapping[str, Sha256], about(
        "SHA-256 of each of the two files, under the names `model` and `exported`.")]  # fmt: skip
    inputs: Annotated[Sequence[str], about("Descriptions of the calls that were compared.")]
    ratios: Annotated[Mapping[str, Number], about(
        "For every program, the largest error of its outputs relative to the model in float64, as a multiple of the "
        "model's own error; for a float64 program, the error itself.")]  # fmt: skip
    members: Annotated[Mapping[str, Sha256], about(
        "SHA-256 of the weights and of every program of a StableHLO file.")]  # fmt: skip
    environment: Annotated[Mapping[str, str], about("Versions of the libraries, and the device.")]
    seconds: Annotated[float, about("Duration in seconds, including compilation.")]


FORMAT = 1
SUFFIX = ".stablehlo"
FACTS = "facts.json"
PROGRAM = ".program"
EXPORT_AGAIN = "export the model again"
UNZIPPING = (KeyError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error)
"""What `zipfile` raises for damaged archives and kinds that it does not read."""


def export_target(
    path: Path, inputs: Mapping[str, Path] | None = None, force: bool = False, option: str | None = "-o"
) -> Target:
    """Return the target of an artifact made from ``inputs``; raises an error if it cannot be written, before jax is
    imported."""
    return file_target(path, (SUFFIX,), inputs, force, option, {SUFFIX: Needed("flatbuffers", "flatbuffers", "export")})


def write_artifact(
    target: Target, facts: Mapping[str, object], programs: Mapping[str, bytes], weights: Sequence[Array]
) -> int:
    """Write everything under a temporary name, rename it and return the size in bytes.

    Raises :class:`MachineError` if writing fails; no temporary file is left then.
    """
    listed = [{"dtype": str(array.dtype), "shape": list(array.shape)} for array in weights]
    document = json.dumps({"format": FORMAT, **facts, "weights": listed}, indent=1).encode()
    # ZipInfo without a date writes 1980-01-01, so that equal contents give equal bytes.
    with sealed_archive(target.output) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(FACTS), document)
        for name, program in programs.items():
            archive.writestr(zipfile.ZipInfo(f"{name}{PROGRAM}"), program)
        # zip64 from the start: the size is not known when the header is written, and may exceed 2 GiB.
        with archive.open(zipfile.ZipInfo("weights.bin"), "w", force_zip64=True) as member:
            for array in weights:
                member.write(np.ascontiguousarray(array).tobytes())
    return target.path.stat().st_size


def is_artifact(path: Path) -> bool:
    """Whether the content of a file, not its name, is that of an exported program."""
    # By its content: an artifact may have been renamed.
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except UNZIPPING:
        return False
    return FACTS in names and any(name.endswith(PROGRAM) for name in names)


def read_facts(path: Path) -> dict[str, Any]:
    """The facts of an artifact; raises :class:`InputError` if it has none."""
    try:
        with located(path), zipfile.ZipFile(path) as archive:
            facts, digests = archive.read(FACTS), digests_in(archive)
            # Files of older releases have no digests.
            if digests is not None and hashlib.sha256(facts).hexdigest() != digests.get(FACTS):
                raise Fault("its facts are not those that wdport wrote", EXPORT_AGAIN)
            return strict_json(facts, FACTS)
    except UNZIPPING as error:
        raise InputError(path, f"is not a model that wdport exported ({error})", EXPORT_AGAIN) from None


def member_digests(path: Path) -> dict[str, str]:
    """The SHA-256 of every member but the facts; raises :class:`InputError` for a damaged one."""
    digests_by_name = {}
    try:
        with located(path), zipfile.ZipFile(path) as archive:
            names, digests = [name for name in archive.namelist() if name != FACTS], digests_in(archive)
            # Readers differ in which of two members of one name they take.
            if len(set(names)) != len(names):
                raise Fault("has two members of one name", EXPORT_AGAIN)
            for name in names:
                digests_by_name[name] = member_sha256(archive, name)
                if digests is not None and digests_by_name[name] != digests.get(name):
                    raise Fault(f"its member {name} is not the one that wdport wrote", EXPORT_AGAIN)
    except UNZIPPING as error:
        raise InputError(path, f"is damaged ({error})", EXPORT_AGAIN) from None
    return digests_by_name


def write_compared(target: Target, source: Path, compared: Mapping[str, object]) -> int:
    """Write a copy of an artifact whose facts state what was ``compared``; return the size in bytes.

    Raises :class:`MachineError` if writing fails.
    """
    document = json.dumps({**read_facts(source), "compared": compared}, indent=1).encode()
    with (
        sealed_archive(target.output) as file,
        zipfile.ZipFile(source) as before,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
    ):
        archive.writestr(zipfile.ZipInfo(FACTS), document)
        # The programs and weights are copied as they are, since these are the ones that were compared.
        for name in before.namelist():
            if name != FACTS:
                with before.open(name) as member, archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as copy:
                    shutil.copyfileobj(member, copy)
    return target.path.stat().st_size
