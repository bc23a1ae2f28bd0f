"""`wdport export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from wdport.cli.completion import File, Suggested
from wdport.cli.documents import give, json_option, require_document
from wdport.cli.export_torch import export_torch
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.options import (
    CHECKPOINT,
    MODEL,
    SAMPLERS,
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
from wdport.cli.verb import OneOf, Verb, Whole
from wdport.dtype_policies import POLICIES
from wdport.errors import UsageError, printable
from wdport.files.manifests import file_sha256
from wdport.files.writable import by_name, with_manifests

if TYPE_CHECKING:  # it brings in jax
    from wdport.exporting.api import Exported


PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


class Options(TypedDict):
    """Arguments of :func:`wdport.exporting.api.export`."""

    batch: int | None
    sampler: str | None
    steps: int | None
    eta: float
    precision: str
    pad_widths: int


@click.command(name="export", cls=Verb)
@click.argument("model", type=MODEL)
@click.option("--to", type=OneOf(["stablehlo", "torch"]), default="stablehlo", show_default=True,
              help="A program, or the checkpoint's own tensors for PyTorch.")  # fmt: skip
@click.option("--what", type=OneOf(["denoiser", "sampler"]), default="denoiser", show_default=True,
              help="The network only, or a complete sampler.")  # fmt: skip
@click.option("--platforms", type=Suggested(lambda: PLATFORMS, several=True), default="cpu", metavar="NAMES",
              show_default=True,
              help="Comma-separated: cpu, cuda, rocm, tpu; they need not be available here.")  # fmt: skip
@click.option("--batch", type=Whole(1, 1 << 24), help="Fixed batch size.  [default: any]")
@click.option(
    "--sampler",
    type=OneOf(SAMPLERS),
    metavar="NAME",
    help="As in wdport sample; for --what sampler.  [default: ddpm, for a flow heun]",
)
@click.option("--steps", type=int, help="As in wdport sample.  [default: all]")
@click.option("--eta", type=float, default=0.0, show_default=True, help="Noise level of ddim.")
@click.option("--dtype", type=OneOf(["float32", "mixed_bfloat16"]), default="float32", show_default=True,
              help="Keras dtype policy of the model.")  # fmt: skip
@click.option("--precision", type=OneOf(["highest", "default"]), default="highest", show_default=True,
              help="Precision of float32 products; default lets a TPU or GPU use fewer bits.")  # fmt: skip
@pad_option
@own_mapping_option
@own_model_option
@click.option(
    "--like",
    metavar="FILE",
    type=CHECKPOINT,
    help="With --to torch, the checkpoint: supplies tensors that the model does not hold.",
)
@key_option
@sha256_option
@json_option
@click.option("-o", "--output", metavar="FILE", type=File([".stablehlo", ".safetensors", ".pt"]),
              help="NAME.stablehlo; with --to torch NAME.safetensors or NAME.pt.  "
              "[default: MODEL.stablehlo or MODEL.torch.safetensors beside it]")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing output, but never a symbolic link.")
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
    json_file: str | None,
    force: bool,
    **options: Unpack[Options],
) -> int:
    """Export a converted MODEL as StableHLO with its weights, to run with only jax, or as PyTorch tensors.

    Copy wdport/exporting/loader.py to where StableHLO runs; it needs jax and, to read the file, flatbuffers.
    """
    # Files are checked before jax is imported, so that errors are instant.
    from wdport.checkpoint.known import require_sha256
    from wdport.exporting.artefact import export_target
    from wdport.files.target import stem_of

    require_sha256(model, sha256)
    if to == "torch":
        return export_torch(model, output, mapping, function, like, key, force, json_file)
    if like or key:
        raise UsageError("--like" if like else "--key", "requires --to torch", "leave it out, or add --to torch")
    converted = open_sampled(model, mapping, function)
    path = Path(output) if output else converted.path.with_name(f"{stem_of(converted.path)}.stablehlo")
    if what == "denoiser" and (options["sampler"] or options["steps"] is not None or options["eta"]):
        raise UsageError(
            "--sampler", "requires --what sampler", "leave out --sampler, --steps and --eta, or add --what sampler"
        )
    inputs = with_manifests(by_name(model=model, mapping=mapping), ["model"])
    target = export_target(path, inputs, force)
    require_document(json_file, inputs, {"-o": target.path}, force)

    require_jax()
    from wdport.exporting.api import Order, export_network
    from wdport.sampling.network import stored_network

    start_jax()
    order = Order(what, tuple(name.strip() for name in platforms.split(",") if name.strip()), **options)
    network = stored_network(converted.family, converted.config, stored_variables(converted), dtype, order.pad_widths)
    made = export_network(network, POLICIES[dtype][0], converted.config, target, order)
    give("export", lambda: _document(converted.path.name, made), json_file, lambda: _text(converted.path.name, made))
    return 0


def _document(name: str, made: Exported) -> dict[str, object]:
    """What was written, as JSON; shapes are those of one sample."""
    held, plan = made.facts, made.plan
    arrays = {each[0]: list(each[1]) for each in (made.state, made.decoded) if each}
    return {
        "model": name,
        "to": "stablehlo",
        "what": held["what"],
        "output": {"name": made.path.name, "sha256": file_sha256(made.path), "bytes": made.size},
        "platforms": list(made.platforms),
        "batch": held["batch"],
        "arrays": arrays,
        "classes": held.get("classes"),
        "compute_dtype": held["compute_dtype"],
        "precision": held["precision"],
        "sampler": plan and {"name": plan.sampler, "network_calls": len(plan.steps), "eta": plan.eta},
    }


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
    return f"{printable(name, None)}: {held['what']} exported\n{facts(rows)}"
