"""`wdport export`. Files are checked before jax is imported, so that errors are instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import UNSET

from wdport.base.errors import UsageError, printable
from wdport.base.options import FORCE_OUTPUT, JSON, KEY, MODEL, SHA256, Operand, Option
from wdport.base.shared_types import POLICIES
from wdport.cli.click_options import arguments, refuse, verb
from wdport.cli.console import facts, size
from wdport.cli.documents import Destination, give, require_document
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.verb import given_options
from wdport.files.inputs import InputFiles
from wdport.files.json_document import output_file
from wdport.files.model_target import Target, stem_of
from wdport.models.interface import FORMER_SAMPLERS
from wdport.uses.cli.model_inputs import SAMPLERS, SPACING, model_inputs, not_sampled, open_own, stored_variables
from wdport.uses.cli.verification import require_passed, unverified, verified_artifact, verified_row

if TYPE_CHECKING:
    from wdport.conversion.inverse import Restored
    from wdport.conversion.load import Converted
    from wdport.uses.cli.results import ExportDocument
    from wdport.uses.exporting.api import Exported, Order
    from wdport.uses.exporting.verification import Verification

OTHERS = ("what", "platforms", "batch", "sampler", "steps", "spacing", "eta", "dtype", "precision", "sizes", "inputs")
"""Options of programs, which do not apply to a file of tensors."""

DESCRIBED = ("what", "batch", "programs", "condition", "compute_dtype", "precision")
"""Facts of an exported file that the document repeats."""


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """The command's argument and options."""

    model: Annotated[str, Operand(files="converted")]
    to: Annotated[str, Option(
        "Export a program, or the checkpoint's own tensors for PyTorch.",
        choices=("stablehlo", "torch"))] = "stablehlo"  # fmt: skip
    what: Annotated[str | None, Option(
        "The denoiser of a diffusion model, its complete sampler, or the network of any model with its own inputs and "
        "outputs.  [default: denoiser if the model draws samples, else network]",
        choices=("denoiser", "sampler", "network"))] = None  # fmt: skip
    platforms: Annotated[str, Option(
        "Comma-separated list of cpu, cuda, rocm and tpu; they need not be available on this machine.",
        "NAMES", by_comma=True, completions=lambda: ("cpu", "cuda", "rocm", "tpu"))] = "cpu"  # fmt: skip
    batch: Annotated[int | None, Option(
        "Fixed batch size.  [default: any]",
        "N", names=("--batch-size",), former=("--batch",), bounds=(1, 1 << 24))] = None  # fmt: skip
    sizes: Annotated[tuple[str, ...], Option(
        "Fix another size that the network leaves open, such as n=512.",
        "NAME=N", names=("--size",))] = ()  # fmt: skip
    sampler: Annotated[str | None, Option(
        "As for wdport sample, with --what sampler.  [default: as for wdport sample]",
        "NAME", choices=SAMPLERS, former_choices=FORMER_SAMPLERS)] = None  # fmt: skip
    steps: Annotated[int | None, Option("As for wdport sample.  [default: as for wdport sample]")] = None
    spacing: Annotated[str | None, SPACING] = None
    eta: Annotated[
        float, Option("Eta of ddim: the noise that each step adds, as a fraction of DDPM's; 0 for none.")
    ] = 0.0
    dtype: Annotated[str, Option(
        "Keras dtype policy of the network.", choices=("float32", "mixed_bfloat16"))] = "float32"  # fmt: skip
    precision: Annotated[str, Option(
        "Precision of float32 matrix products and convolutions; with 'default', a TPU or GPU may use fewer bits.",
        choices=("highest", "default"))] = "highest"  # fmt: skip
    mapping: Annotated[str | None, Option(
        "The table of your own model; for a denoiser or sampler, it must contain the settings for sampling.",
        files="table", group="model")] = None  # fmt: skip
    function: Annotated[str | None, MODEL] = None
    inputs: Annotated[tuple[str, ...], Option(
        "One input of your own model, such as 'x: b 3 48 48', if its table lists none.",
        "'NAME: AXES'", group="model")] = ()  # fmt: skip
    like: Annotated[str | None, Option(
        "With --to torch, the checkpoint that supplies the tensors that MODEL lacks.",
        files="checkpoint")] = None  # fmt: skip
    optimizer: Annotated[str | None, Option(
        "With --to torch, the optimizer file from convert --with-optimizer; needed for a training checkpoint (.pt).",
        names=("--optimizer-file",), former=("--optimizer",), files=(".safetensors",))] = None  # fmt: skip
    key: Annotated[str | None, KEY] = None
    sha256: Annotated[str | None, SHA256] = None
    json_file: Annotated[str | None, JSON] = None
    output: Annotated[str | None, Option(
        "NAME.stablehlo; with --to torch NAME.safetensors or NAME.pt.  [default: MODEL.stablehlo or "
        "MODEL.torch.safetensors next to it]", files=(".stablehlo", ".safetensors", ".pt"))] = None  # fmt: skip
    verify: Annotated[bool, Option(
        "Compare the programs with MODEL, in a process without wdport, or the tensors with the checkpoint; write "
        "nothing if they differ.")] = False  # fmt: skip
    force: Annotated[bool, FORCE_OUTPUT] = False


@verb("export", ExportRequest)
def command(request: ExportRequest) -> None:
    """Export a converted MODEL as StableHLO with its weights, to run with only JAX, or as PyTorch tensors.

    Copy wdport/uses/exporting/loader.py to the machine that runs the program; the loader needs JAX and, to read the
    file, flatbuffers.
    """
    from wdport.uses.exporting.artifact import export_target

    model, output, what = request.model, request.output, request.what
    read = model_inputs(model, request.sha256, mapping=request.mapping, like=request.like, optimizer=request.optimizer)
    if request.to == "torch":
        _export_torch(request, read)
        return
    refuse(request, ("like", "optimizer", "key"), "requires --to torch", "leave it out, or add --to torch")
    converted = open_own(model, request.mapping, request.function, request.inputs)
    why = not_sampled(converted)
    what = what or ("network" if why else "denoiser")
    if what != "network" and why:
        raise UsageError(converted.path, why[0], f"{why[1]}; --what network exports this one")
    if what != "sampler":
        fix = "leave it out, or add --what sampler"
        refuse(request, ("sampler", "steps", "spacing", "eta"), "requires --what sampler", fix)
    if what != "network":
        refuse(request, ("sizes", "inputs"), "requires --what network", "leave it out, or add it")
    sizes = _sizes(request.sizes)
    path = Path(output) if output else converted.path.with_name(f"{stem_of(converted.path)}.stablehlo")
    target = export_target(path, read, request.force)
    document = require_document(request.json_file, read, {"-o": target.path}, request.force)
    require_jax()
    start_jax()
    _export_program(request, what, converted, target, document, sizes)


def _sizes(pairs: tuple[str, ...]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name or name in sizes or not (value.isascii() and value.isdecimal() and len(value) < 10):
            raise UsageError("--size", f"{printable(pair, 40)!r} is not NAME=N", "write for example --size n=512, once")
        sizes[name] = int(value)
    return sizes


def _export_torch(request: ExportRequest, inputs: InputFiles) -> None:
    """Write PyTorch tensors and print a summary."""
    if others := [option for name, option in given_options().items() if name in OTHERS]:
        raise UsageError(others[0], "requires --to stablehlo; --to torch writes tensors", "leave it out")
    from wdport.conversion.inverse import restored
    from wdport.conversion.load import open_converted
    from wdport.families.registry import own_model
    from wdport.files.atomic import copy_file
    from wdport.mapping.table import load_table
    from wdport.uses.exporting.to_torch import torch_output, verify_tensors, write_restored

    mapping = request.mapping
    converted = open_converted(inputs["model"], own_model(mapping, request.function, None, ()))
    target = torch_output(converted, request.output, inputs, request.force)
    document = require_document(request.json_file, inputs, {"-o": target.path}, request.force)
    back = restored(converted, load_table(Path(mapping)) if mapping else None, inputs.get("like"), request.key)
    with unverified(target, request.verify) as first:
        written = write_restored(first, converted, back, inputs.get("optimizer"))
        verification = None
        if request.verify:
            where = back.key if request.optimizer else None
            verification = verify_tensors(converted, first.path, back, inputs.get("like"), where)
            require_passed(verification, target, document)
            copy_file(first.path, target.output)
    name = converted.path.name
    described = {field: getattr(back, field) for field in ("prefixes", "recomputed", "chosen", "left_out")}
    give("export", lambda: _document(name, "torch", target.path, verification, tensors=len(back.tensors), **described),
         document, lambda: _torch_text(name, back, target.path, written, verification))  # fmt: skip


def _document(
    name: str, to: Literal["stablehlo", "torch"], path: Path, verification: Verification | None, **described: Any
) -> ExportDocument:
    """What was written; ``described`` are the fields of this kind of file."""
    from wdport.uses.cli.results import ExportDocument

    gates = [gate.document() for gate in verification.gates] if verification else UNSET
    return ExportDocument(model=name, to=to, output=output_file(path), verified=gates, **described)


def _torch_text(name: str, back: Restored, path: Path, written: int, verification: Verification | None) -> str:
    rows = [
        ("tensors", f"{len(back.tensors)} of the checkpoint's names, shapes and dtypes"),
        ("names", f"without the prefix {' and '.join(back.prefixes)} of the checkpoint" if back.prefixes else ""),
        ("recomputed", f"{len(back.recomputed)} tables, by their formulas; --like gives the stored ones"
         if back.recomputed else ""),
        ("by choice", f"{len(back.chosen)} that arithmetic joined, equal in function" if back.chosen else ""),
        ("left out", _left_out(back.left_out)),
        verified_row(verification),
        ("wrote", f"{path} ({size(written)})"),
    ]  # fmt: skip
    return f"{printable(name, None)}: back in PyTorch's layout\n{facts(rows)}"


def _left_out(names: Mapping[str, str]) -> str:
    if not names:
        return ""
    listed = ", ".join(list(names)[:3]) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} that the conversion dropped ({listed}); --like gives them"


def _export_program(
    request: ExportRequest, what: str, converted: Converted, target: Target, document: Destination,
    sizes: Mapping[str, int],
) -> None:  # fmt: skip
    """Write the programs of ``what`` to ``target`` and print a summary."""
    import keras  # noqa: F401  before our modules that need it: importing it imports the ports

    from wdport.uses.exporting.api import Order, checked_platforms
    from wdport.uses.exporting.artifact import write_compared

    names = checked_platforms(name.strip() for name in request.platforms.split(",") if name.strip())
    order = Order(**arguments(Order, request, what=what, platforms=names, sizes=sizes))
    with unverified(target, request.verify) as first:
        exported, verification = _exported(converted, request.dtype, first, order), None
        if request.verify:
            verification = verified_artifact(converted, first.path)
            require_passed(verification, target, document)
            write_compared(target, first.path, verification.compared())
            exported = replace(exported, path=target.path, size=target.path.stat().st_size)
    name = converted.path.name
    give("export", lambda: _program_document(name, exported, verification), document,
         lambda: _program_text(name, exported, verification))  # fmt: skip


def _exported(converted: Converted, dtype: str, target: Target, order: Order) -> Exported:
    """Export the network, or what draws samples."""
    from wdport.uses.exporting.api import export_functions, export_network
    from wdport.uses.exporting.lowering import functions_of, held_as
    from wdport.uses.sampling.network import stored_network

    family, config, compute_dtype = converted.family, converted.config, POLICIES[dtype][0]
    if order.what != "network":
        network = stored_network(family, config, stored_variables(converted), dtype)
        return export_network(network, compute_dtype, config, target, order)
    model = family.build(config, dtype)
    functions, values = functions_of(family, config, model), held_as(model, stored_variables(converted))
    return export_functions(functions, values, compute_dtype, config.to_dict(), target, order)


def _program_document(name: str, exported: Exported, verification: Verification | None) -> ExportDocument:
    """What was written; shapes are those of one sample, and of a network's whole arrays."""
    from wdport.uses.cli.results import ExportedSampler

    held, plan = exported.facts, exported.plan
    arrays = {array[0]: array[1] for array in (exported.state, exported.decoded) if array}
    return _document(
        name, "stablehlo", exported.path, verification, platforms=exported.platforms, classes=held.get("classes"),
        arrays=UNSET if "programs" in held else arrays,
        sampler=None if plan is None else ExportedSampler(plan.sampler, len(plan.steps), plan.eta, plan.spacing),
        **{field: held.get(field, UNSET) for field in DESCRIBED},
    )  # fmt: skip


def _program_text(name: str, exported: Exported, verification: Verification | None) -> str:
    held = exported.facts
    rows = [
        *(_sampled_rows(exported) if exported.state else _network_rows(held["programs"])),
        ("platforms", ", ".join(exported.platforms)),
        ("computes in", f"{held['compute_dtype']}, {held['precision']} precision of products"),
        verified_row(verification),
        ("wrote", f"{exported.path} ({size(exported.size)})"),
    ]
    return f"{printable(name, None)}: {held['what']} exported\n{facts(rows)}"


def _sampled_rows(exported: Exported) -> list[tuple[str, str]]:
    held, plan = exported.facts, exported.plan
    eta = f", eta {plan.eta:g}" if plan and plan.eta else ""
    spacing = f", {plan.spacing} spacing" if plan and plan.spacing else ""
    batch = held["batch"] or "b"

    def named(array: tuple[str, tuple[int, ...]]) -> str:
        return f"{array[0]} {_shaped((batch, *array[1]))}"

    state = named(exported.state) if exported.state else ""
    decoded = f", {named(exported.decoded)}" if exported.decoded else ""
    spec: Any = held.get("condition")
    condition = f", {spec['name']} {(batch, *spec['shape'])}".replace("'", "") if spec else ""
    shape = state.partition(" ")[2]
    return [
        ("sampler", f"{plan.sampler}, {len(plan.steps)} network calls{spacing}{eta}" if plan else ""),
        ("takes", ("seed, indices (b,); or x_T and noise" if plan else f"state {shape}, time ({batch},)") + condition),
        ("gives", f"{state}{decoded}" if plan else f"prediction {shape}"),
    ]


def _network_rows(programs: Any) -> list[tuple[str, str]]:
    """Of one program what it takes and gives, of several a row each."""

    def arrays(specs: Any) -> str:
        return ", ".join(f"{spec['name']} {_shaped(spec['shape'])}" for spec in specs)

    if len(programs) == 1:
        (program,) = programs.values()
        return [("takes", arrays(program["inputs"])), ("gives", arrays(program["outputs"]))]
    return [
        (name, f"{arrays(program['inputs'])} -> {arrays(program['outputs'])}") for name, program in programs.items()
    ]


def _shaped(shape: Any) -> str:
    return f"({', '.join(map(str, shape))})"
