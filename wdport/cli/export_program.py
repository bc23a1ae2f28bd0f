"""Write a converted model as StableHLO programs with its weights, and report it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import keras  # noqa: F401  before our modules that need it: importing it imports the ports
from msgspec import UNSET

from wdport.cli.click_options import arguments
from wdport.cli.console import facts, size
from wdport.cli.documents import Destination, give
from wdport.cli.export_request import ExportRequest
from wdport.cli.export_torch import export_document
from wdport.cli.model_inputs import stored_variables
from wdport.cli.results import ExportDocument, ExportedSampler
from wdport.cli.verification import passes, unverified, verified_artifact, verified_row
from wdport.conversion.load import Converted
from wdport.errors import printable
from wdport.exporting.api import Exported, Order, checked_platforms, export_functions, export_network
from wdport.exporting.artifact import write_compared
from wdport.exporting.lowering import functions_of, held_as
from wdport.exporting.verification import Verification
from wdport.files.model_target import Target
from wdport.sampling.network import stored_network
from wdport.shared_types import POLICIES

DESCRIBED = ("what", "batch", "programs", "condition", "compute_dtype", "precision")
"""Facts of an exported file that the document repeats."""


def export_program(
    request: ExportRequest, what: str, converted: Converted, target: Target, document: Destination,
    sizes: Mapping[str, int],
) -> int:  # fmt: skip
    """Write the programs of ``what`` to ``target`` and print a summary."""
    names = checked_platforms(name.strip() for name in request.platforms.split(",") if name.strip())
    order = Order(**arguments(Order, request, what=what, platforms=names, sizes=sizes))
    export = _network if what == "network" else _denoiser
    with unverified(target, request.verify) as first:
        exported, verification = export(converted, request.dtype, first, order), None
        if request.verify:
            verification = verified_artifact(converted, first.path)
            if not passes(
                verification, target, lambda: write_compared(target, first.path, verification.compared()), document
            ):
                return verification.exit_code
            exported = replace(exported, path=target.path, size=target.path.stat().st_size)
    name = converted.path.name
    give("export", lambda: _program_document(name, exported, verification), document,
         lambda: _text(name, exported, verification))  # fmt: skip
    return 0


def _denoiser(converted: Converted, dtype: str, target: Target, order: Order) -> Exported:

    network = stored_network(converted.family, converted.config, stored_variables(converted), dtype)
    return export_network(network, POLICIES[dtype][0], converted.config, target, order)


def _network(converted: Converted, dtype: str, target: Target, order: Order) -> Exported:

    model = converted.family.build(converted.config, dtype)
    functions = functions_of(converted.family, converted.config, model)
    values = held_as(model, stored_variables(converted))
    return export_functions(functions, values, POLICIES[dtype][0], converted.config.to_dict(), target, order)


def _program_document(name: str, exported: Exported, verification: Verification | None) -> ExportDocument:
    """What was written; shapes are those of one sample, and of a network's whole arrays."""

    held, plan = exported.facts, exported.plan
    arrays = {array[0]: array[1] for array in (exported.state, exported.decoded) if array}
    return export_document(
        name, "stablehlo", exported.path, verification, platforms=exported.platforms, classes=held.get("classes"),
        arrays=UNSET if "programs" in held else arrays,
        sampler=None if plan is None else ExportedSampler(plan.sampler, len(plan.steps), plan.eta),
        **{field: held.get(field, UNSET) for field in DESCRIBED},
    )  # fmt: skip


def _text(name: str, exported: Exported, verification: Verification | None) -> str:
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
    batch = held["batch"] or "b"

    def named(array: tuple[str, tuple[int, ...]]) -> str:
        return f"{array[0]} {_shaped((batch, *array[1]))}"

    state = named(exported.state) if exported.state else ""
    decoded = f", {named(exported.decoded)}" if exported.decoded else ""
    spec: Any = held.get("condition")
    condition = f", {spec['name']} {(batch, *spec['shape'])}".replace("'", "") if spec else ""
    shape = state.partition(" ")[2]
    return [
        ("sampler", f"{plan.sampler}, {len(plan.steps)} network calls{eta}" if plan else ""),
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
