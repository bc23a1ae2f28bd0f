"""`wdport export`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click
from msgspec import UNSET

from wdport.cli.completion import File, Suggested
from wdport.cli.documents import give, json_option, require_document
from wdport.cli.export_torch import export_torch
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.options import (
    CHECKPOINT,
    MODEL,
    SAMPLERS,
    TABLE,
    facts,
    key_option,
    not_sampled,
    open_own,
    own_model_option,
    pad_option,
    sha256_option,
    size,
    stored_variables,
)
from wdport.cli.verb import OneOf, Verb, Whole
from wdport.cli.verification import passes, unverified, verified_artefact, verified_row
from wdport.dtype_policies import POLICIES
from wdport.errors import UsageError, printable
from wdport.files.inputs import InputFiles

if TYPE_CHECKING:  # it brings in jax
    from wdport.cli.results import ExportDocument
    from wdport.conversion.load import Converted
    from wdport.exporting.api import Exported, Order
    from wdport.exporting.verification import Verification
    from wdport.files.target import Target


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
@click.option("--what", type=OneOf(["denoiser", "sampler", "network"]),
              help="The denoiser of a diffusion model, its complete sampler, or the network of any model with its own "
              "inputs and outputs.  [default: denoiser if the model draws samples, else network]")  # fmt: skip
@click.option("--platforms", type=Suggested(lambda: PLATFORMS, several=True), default="cpu", metavar="NAMES",
              show_default=True,
              help="Comma-separated: cpu, cuda, rocm, tpu; they need not be available here.")  # fmt: skip
@click.option("--batch", type=Whole(1, 1 << 24), help="Fixed batch size.  [default: any]")
@click.option("--size", "sizes", metavar="NAME=N", multiple=True,
              help="Fix another size of a network that may differ between calls, such as n=512.")  # fmt: skip
@click.option(
    "--sampler",
    type=OneOf(SAMPLERS),
    metavar="NAME",
    help="As in wdport sample; for --what sampler.  [default: ddpm, for a flow heun]",
)
@click.option("--steps", type=int, help="As in wdport sample.  [default: all; 20 of sde-dpm-solver++]")
@click.option("--eta", type=float, default=0.0, show_default=True, help="Noise level of ddim.")
@click.option("--dtype", type=OneOf(["float32", "mixed_bfloat16"]), default="float32", show_default=True,
              help="Keras dtype policy of the model.")  # fmt: skip
@click.option("--precision", type=OneOf(["highest", "default"]), default="highest", show_default=True,
              help="Precision of float32 products; default lets a TPU or GPU use fewer bits.")  # fmt: skip
@pad_option
@click.option("--mapping", metavar="FILE", type=TABLE,
              help="The table of your own model; a denoiser or sampler needs its settings for sampling.")  # fmt: skip
@own_model_option
@click.option("--input", "inputs", metavar="'NAME: AXES'", multiple=True,
              help="One input of your own model, such as 'x: b 3 48 48', if its table states none.")  # fmt: skip
@click.option(
    "--like",
    metavar="FILE",
    type=CHECKPOINT,
    help="With --to torch, the checkpoint: supplies tensors that the model does not hold.",
)
@click.option(
    "--optimizer",
    metavar="FILE",
    type=File([".safetensors"]),
    help="With --to torch, the file from convert --with-optimizer: writes a training checkpoint (.pt).",
)
@key_option
@sha256_option
@json_option
@click.option("-o", "--output", metavar="FILE", type=File([".stablehlo", ".safetensors", ".pt"]),
              help="NAME.stablehlo; with --to torch NAME.safetensors or NAME.pt.  "
              "[default: MODEL.stablehlo or MODEL.torch.safetensors beside it]")  # fmt: skip
@click.option("--verify", is_flag=True, help="Compare the programs with MODEL, in a process without wdport, or the "
              "tensors with the checkpoint; write nothing if they differ.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing output, but never a symbolic link.")
def command(
    model: str,
    output: str | None,
    to: str,
    like: str | None,
    optimizer: str | None,
    key: str | None,
    what: str | None,
    platforms: str,
    sizes: tuple[str, ...],
    inputs: tuple[str, ...],
    dtype: str,
    mapping: str | None,
    function: str | None,
    sha256: str | None,
    json_file: str | None,
    verify: bool,
    force: bool,
    **options: Unpack[Options],
) -> int:
    """Export a converted MODEL as StableHLO with its weights, to run with only jax, or as PyTorch tensors.

    Copy wdport/exporting/loader.py to where StableHLO runs; it needs jax and, to read the file, flatbuffers.
    """
    # Files are checked before jax is imported, so that errors are instant.
    from wdport.checkpoint.known import require_sha256
    from wdport.exporting.artefact import export_target, write_compared
    from wdport.files.target import stem_of

    read = InputFiles(model=model, mapping=mapping, like=like, optimizer=optimizer).with_manifests("model")
    read.check(partial(require_sha256, model, sha256))
    if to == "torch":
        return export_torch(read, output, mapping, function, optimizer, key, verify, force, json_file)
    for option, value in (("--like", like), ("--optimizer", optimizer), ("--key", key)):
        if value:
            raise UsageError(option, "requires --to torch", "leave it out, or add --to torch")
    converted = open_own(model, mapping, function, inputs)
    why = not_sampled(converted)
    what = what or ("network" if why else "denoiser")
    if what != "network" and why:
        raise UsageError(converted.path, why[0], f"{why[1]}; --what network exports this one")
    _require_fitting(what, sizes, inputs, options)
    path = Path(output) if output else converted.path.with_name(f"{stem_of(converted.path)}.stablehlo")
    target = export_target(path, read, force)
    document = require_document(json_file, read, {"-o": target.path}, force)

    require_jax()
    from wdport.exporting.api import Order, checked_platforms

    start_jax()
    names = checked_platforms(name.strip() for name in platforms.split(",") if name.strip())
    order = Order(what, names, sizes=_sizes(sizes), **options)
    export = _network if what == "network" else _denoiser
    with unverified(target, verify) as first:
        made, found = export(converted, dtype, first, order), None
        if verify:
            found = verified_artefact(converted, first.path)
            if not passes(found, target, lambda: write_compared(target, first.path, found.compared()), document):
                return found.exit_code
            made = replace(made, path=target.path, size=target.path.stat().st_size)
    name = converted.path.name
    give("export", lambda: _document(name, made, found), document, lambda: _text(name, made, found))
    return 0


def _require_fitting(what: str, sizes: tuple[str, ...], inputs: tuple[str, ...], options: Options) -> None:
    """Raise :class:`UsageError` for options of another kind of export."""
    if what != "sampler" and (options["sampler"] or options["steps"] is not None or options["eta"]):
        raise UsageError(
            "--sampler", "requires --what sampler", "leave out --sampler, --steps and --eta, or add --what sampler"
        )
    if what == "network" and options["pad_widths"] != 1:
        raise UsageError("--pad-widths", "is for a denoiser or sampler", "leave it out")
    if what != "network" and (sizes or inputs):
        raise UsageError("--size" if sizes else "--input", "requires --what network", "leave it out, or add it")


def _sizes(pairs: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name or name in found or not (value.isascii() and value.isdecimal() and len(value) < 10):
            raise UsageError("--size", f"{printable(pair, 40)!r} is not NAME=N", "write for example --size n=512, once")
        found[name] = int(value)
    return found


def _denoiser(converted: Converted, dtype: str, target: Target, order: Order) -> Exported:
    from wdport.exporting.api import export_network
    from wdport.sampling.network import stored_network

    network = stored_network(converted.family, converted.config, stored_variables(converted), dtype, order.pad_widths)
    return export_network(network, POLICIES[dtype][0], converted.config, target, order)


def _network(converted: Converted, dtype: str, target: Target, order: Order) -> Exported:
    import keras  # noqa: F401  before our modules that need it: importing it imports the ports

    from wdport.exporting.api import export_functions
    from wdport.exporting.network import functions_of, held_as

    model = converted.family.build(converted.config, dtype)
    functions = functions_of(converted.family, converted.config, model)
    values = held_as(model, stored_variables(converted))
    return export_functions(functions, values, POLICIES[dtype][0], converted.config.to_dict(), target, order)


def _document(name: str, made: Exported, found: Verification | None) -> ExportDocument:
    """What was written; shapes are those of one sample, and of a network's whole arrays."""
    from wdport.cli.results import ExportDocument, ExportedSampler
    from wdport.files.json_document import output_file

    held: Any = made.facts
    plan = made.plan
    arrays = {each[0]: each[1] for each in (made.state, made.decoded) if each}
    return ExportDocument(
        model=name,
        to="stablehlo",
        what=held["what"],
        output=output_file(made.path),
        platforms=made.platforms,
        batch=held["batch"],
        arrays=UNSET if "programs" in held else arrays,
        programs=held.get("programs", UNSET),
        classes=held.get("classes"),
        condition=held.get("condition", UNSET),
        compute_dtype=held["compute_dtype"],
        precision=held["precision"],
        sampler=None if plan is None else ExportedSampler(plan.sampler, len(plan.steps), plan.eta),
        verified=[gate.document() for gate in found.gates] if found else UNSET,
    )


def _text(name: str, made: Exported, found: Verification | None) -> str:
    held = made.facts
    rows = [
        *(_sampled_rows(made) if made.state else _network_rows(held["programs"])),
        ("platforms", ", ".join(made.platforms)),
        ("computes in", f"{held['compute_dtype']}, {held['precision']} precision of products"),
        verified_row(found),
        ("wrote", f"{made.path} ({size(made.size)})"),
    ]
    return f"{printable(name, None)}: {held['what']} exported\n{facts(rows)}"


def _sampled_rows(made: Exported) -> list[tuple[str, str]]:
    held, plan = made.facts, made.plan
    eta = f", eta {plan.eta:g}" if plan and plan.eta else ""
    batch = held["batch"] or "b"

    def named(array: tuple[str, tuple[int, ...]]) -> str:
        return f"{array[0]} {_shaped((batch, *array[1]))}"

    state = named(made.state) if made.state else ""
    decoded = f", {named(made.decoded)}" if made.decoded else ""
    taken: Any = held.get("condition")
    condition = f", {taken['name']} {(batch, *taken['shape'])}".replace("'", "") if taken else ""
    shape = state.partition(" ")[2]
    return [
        ("sampler", f"{plan.sampler}, {len(plan.steps)} network calls{eta}" if plan else ""),
        ("takes", ("seed, indices (b,); or x_T and noise" if plan else f"state {shape}, time ({batch},)") + condition),
        ("gives", f"{state}{decoded}" if plan else f"prediction {shape}"),
    ]


def _network_rows(programs: Any) -> list[tuple[str, str]]:
    """Of one program what it takes and gives, of several a row each."""

    def arrays(told: Any) -> str:
        return ", ".join(f"{each['name']} {_shaped(each['shape'])}" for each in told)

    if len(programs) == 1:
        (each,) = programs.values()
        return [("takes", arrays(each["inputs"])), ("gives", arrays(each["outputs"]))]
    return [(name, f"{arrays(each['inputs'])} -> {arrays(each['outputs'])}") for name, each in programs.items()]


def _shaped(shape: Any) -> str:
    return f"({', '.join(map(str, shape))})"
