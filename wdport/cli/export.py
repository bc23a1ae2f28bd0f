"""`wdport export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from wdport.cli.export_torch import export_torch
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.options import (
    facts,
    key_option,
    open_sampled,
    own_mapping_option,
    own_model_option,
    pad_option,
    sha256_option,
    size,
    stored_variables,
)
from wdport.dtype_policies import POLICIES
from wdport.errors import UsageError
from wdport.files.writable import by_name, with_manifests

if TYPE_CHECKING:  # it brings in jax
    from wdport.exporting.api import Exported


class Options(TypedDict):
    """What is handed on to :func:`wdport.exporting.api.export`."""

    batch: int | None
    sampler: str | None
    steps: int | None
    eta: float
    precision: str
    pad_widths: int


@click.command(name="export")
@click.argument("model")
@click.option("--to", type=click.Choice(["stablehlo", "torch"]), default="stablehlo", show_default=True,
              help="A program, or the checkpoint's own tensors for PyTorch.")  # fmt: skip
@click.option("--what", type=click.Choice(["denoiser", "sampler"]), default="denoiser", show_default=True,
              help="The network alone, or a whole sampler with it.")  # fmt: skip
@click.option("--platforms", default="cpu", show_default=True, metavar="NAMES",
              help="Some of cpu, cuda, rocm, tpu, with commas; none of them has to be here.")  # fmt: skip
@click.option("--batch", type=click.IntRange(1, 1 << 24), help="A fixed number of samples.  [default: any number]")
@click.option("--sampler", help="As in wdport sample; for --what sampler.  [default: ddpm, of a flow heun]")
@click.option("--steps", type=int, help="As in wdport sample.  [default: all]")
@click.option("--eta", type=float, default=0.0, show_default=True, help="Noise of ddim.")
@click.option("--dtype", type=click.Choice(["float32", "mixed_bfloat16"]), default="float32", show_default=True,
              help="Keras dtype policy of the model.")  # fmt: skip
@click.option("--precision", type=click.Choice(["highest", "default"]), default="highest", show_default=True,
              help="Of float32 products; default lets a TPU or GPU use fewer bits.")  # fmt: skip
@pad_option
@own_mapping_option
@own_model_option
@click.option("--like", metavar="FILE", help="With --to torch, the checkpoint: gives what the model does not hold.")
@key_option
@sha256_option
@click.option("-o", "--output", metavar="FILE", help="NAME.stablehlo; with --to torch NAME.safetensors or NAME.pt.  "
              "[default: MODEL.stablehlo or MODEL.torch.safetensors beside it]")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing output; never a symbolic link.")
def command(
    model: str,
    output: str | None,
    to: str,
    like: str | None,
    key: str | None,
    what: str,
    platforms: str,
    dtype: str,
    mapping: str | None,
    function: str | None,
    sha256: str | None,
    force: bool,
    **options: Unpack[Options],
) -> int:
    """Write a converted MODEL as StableHLO with its weights, to run with jax alone; or back as PyTorch's tensors.

    Copy wdport/exporting/loader.py to where StableHLO runs; it needs jax and, to read the file, flatbuffers.
    """
    # The files are looked at before jax is imported, so that a refusal is instant.
    from wdport.checkpoint.known import require_sha256
    from wdport.exporting.artefact import export_target
    from wdport.files.target import stem_of

    require_sha256(model, sha256)
    if to == "torch":
        click.echo(export_torch(model, output, mapping, function, like, key, force))
        return 0
    if like or key:
        raise UsageError("--like" if like else "--key", "is of --to torch", "leave it out, or give --to torch")
    converted = open_sampled(model, mapping, function)
    path = Path(output) if output else converted.path.with_name(f"{stem_of(converted.path)}.stablehlo")
    if what == "denoiser" and (options["sampler"] or options["steps"] is not None or options["eta"]):
        raise UsageError("--sampler", "a denoiser has none", "leave out --sampler, --steps, --eta, or --what sampler")
    inputs = with_manifests(by_name(model=model, mapping=mapping), ["model"])
    target = export_target(path, inputs, force)

    require_jax()
    from wdport.exporting.api import Order, export_network
    from wdport.sampling.network import stored_network

    start_jax()
    order = Order(what, tuple(name.strip() for name in platforms.split(",") if name.strip()), **options)
    network = stored_network(converted.family, converted.config, stored_variables(converted), dtype, order.pad_widths)
    made = export_network(network, POLICIES[dtype][0], converted.config, target, order)
    click.echo(_text(converted.path.name, made))
    return 0


def _text(name: str, made: Exported) -> str:
    held, plan = made.facts, made.plan
    eta = f", eta {plan.eta:g}" if plan and plan.eta else ""
    batch = held["batch"] or "b"

    def shaped(shape: tuple[int, ...]) -> str:
        return f"({', '.join(map(str, (batch, *shape)))})"

    state, shape = made.state[0], shaped(made.state[1])
    decoded = f", {made.decoded[0]} {shaped(made.decoded[1])}" if made.decoded else ""
    labels = f", labels ({batch},)" if "classes" in held else ""
    rows = [
        ("sampler", f"{plan.sampler}, {len(plan.steps)} network calls{eta}" if plan else ""),
        ("takes", ("seed, indices (b,); or x_T and noise" if plan else f"state {shape}, time ({batch},)") + labels),
        ("gives", f"{state} {shape}{decoded}" if plan else f"prediction {shape}"),
        ("platforms", ", ".join(made.platforms)),
        ("computes in", f"{held['compute_dtype']}, {held['precision']} precision of products"),
        ("wrote", f"{made.path} ({size(made.size)})"),
    ]
    return f"{name}: {held['what']} exported\n{facts(rows)}"
