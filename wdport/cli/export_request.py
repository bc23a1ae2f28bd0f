"""The argument and options of `wdport export`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from wdport.cli.model_inputs import SAMPLERS
from wdport.model import FORMER_SAMPLERS
from wdport.options import FORCE_OUTPUT, JSON, KEY, MODEL, SHA256, Operand, Option


def _platforms() -> tuple[str, ...]:
    return "cpu", "cuda", "rocm", "tpu"


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """The command's argument and options."""

    model: Annotated[str, Operand(files="converted")]
    to: Annotated[
        str, Option("Export a program, or the checkpoint's own tensors for PyTorch.", choices=("stablehlo", "torch"))
    ] = "stablehlo"
    what: Annotated[
        str | None,
        Option("The denoiser of a diffusion model, its complete sampler, or the network of any model with its own "
               "inputs and outputs.  [default: denoiser if the model draws samples, else network]",
               choices=("denoiser", "sampler", "network")),
    ] = None  # fmt: skip
    platforms: Annotated[
        str,
        Option("Comma-separated list of cpu, cuda, rocm and tpu; they need not be available on this machine.", "NAMES",
               completions=_platforms, by_comma=True),
    ] = "cpu"  # fmt: skip
    batch: Annotated[
        int | None,
        Option(
            "Fixed batch size.  [default: any]", "N", names=("--batch-size",), former=("--batch",), bounds=(1, 1 << 24)
        ),
    ] = None
    sizes: Annotated[
        tuple[str, ...],
        Option("Fix another size that may differ between calls of the network, such as n=512.", "NAME=N",
               names=("--size",)),
    ] = ()  # fmt: skip
    sampler: Annotated[
        str | None,
        Option("As for wdport sample, with --what sampler.  [default: ddpm; for a flow, heun]", "NAME",
               choices=SAMPLERS, former_choices=FORMER_SAMPLERS),
    ] = None  # fmt: skip
    steps: Annotated[int | None, Option("As for wdport sample.  [default: all; 20 for dpm++2m-sde]")] = None
    eta: Annotated[float, Option("Noise level of ddim.")] = 0.0
    dtype: Annotated[
        str, Option("Keras dtype policy of the network.", choices=("float32", "mixed_bfloat16"))
    ] = "float32"  # fmt: skip
    precision: Annotated[
        str,
        Option("Precision of float32 matrix products and convolutions; default lets a TPU or GPU use fewer bits.",
               choices=("highest", "default")),
    ] = "highest"  # fmt: skip
    mapping: Annotated[
        str | None,
        Option("The table of your own model; a denoiser or sampler needs its settings for sampling.", files="table",
               group="model"),
    ] = None  # fmt: skip
    function: Annotated[str | None, MODEL] = None
    inputs: Annotated[
        tuple[str, ...],
        Option("One input of your own model, such as 'x: b 3 48 48', if its table lists none.", "'NAME: AXES'",
               group="model"),
    ] = ()  # fmt: skip
    like: Annotated[
        str | None,
        Option("With --to torch, the checkpoint that supplies the tensors that MODEL lacks.", files="checkpoint"),
    ] = None  # fmt: skip
    optimizer: Annotated[
        str | None,
        Option("With --to torch, the file written by convert --with-optimizer, to write a training checkpoint (.pt).",
               names=("--optimizer-file",), former=("--optimizer",), files=(".safetensors",)),
    ] = None  # fmt: skip
    key: Annotated[str | None, KEY] = None
    sha256: Annotated[str | None, SHA256] = None
    json_file: Annotated[str | None, JSON] = None
    output: Annotated[
        str | None,
        Option("NAME.stablehlo; with --to torch NAME.safetensors or NAME.pt.  [default: MODEL.stablehlo or "
               "MODEL.torch.safetensors next to it]", files=(".stablehlo", ".safetensors", ".pt")),
    ] = None  # fmt: skip
    verify: Annotated[
        bool,
        Option("Compare the programs with MODEL, in a process without wdport, or the tensors with the checkpoint; "
               "write nothing if they differ."),
    ] = False  # fmt: skip
    force: Annotated[bool, FORCE_OUTPUT] = False
