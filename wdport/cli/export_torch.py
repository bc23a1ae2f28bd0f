"""`wdport export --to torch`: a converted model back to the tensors of its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET

from wdport.cli.documents import give, require_document
from wdport.cli.options import facts, size
from wdport.cli.verb import given_options
from wdport.cli.verification import passes, unverified, verified_row
from wdport.errors import UsageError, printable
from wdport.files.inputs import InputFiles

if TYPE_CHECKING:
    from wdport.cli.results import ExportDocument
    from wdport.conversion.back import Restored
    from wdport.exporting.verification import Verification

OTHERS = ("what", "platforms", "batch", "sampler", "steps", "eta", "dtype", "precision", "pad_widths",
          "sizes", "inputs")  # fmt: skip
"""Options of programs, which do not apply to a file of tensors."""


def export_torch(
    inputs: InputFiles, output: str | None, mapping: str | None, function: str | None, optimizer: str | None,
    key: str | None, verify: bool, force: bool, json_file: str | None,
) -> int:  # fmt: skip
    """Write the file and print a summary."""
    options = given_options()
    for option in (options[name] for name in OTHERS if name in options):
        raise UsageError(option, "requires --to stablehlo; --to torch writes tensors", "leave it out")
    from wdport.conversion.back import restored
    from wdport.conversion.load import open_converted
    from wdport.exporting.to_torch import torch_output, write_restored
    from wdport.families.choice import own_model
    from wdport.files.atomic import copy_file
    from wdport.mapping.table import load_table

    converted = open_converted(inputs["model"], own_model(mapping, function, None, ()))
    target = torch_output(converted, output, inputs, force)
    document = require_document(json_file, inputs, {"-o": target.path}, force)
    back = restored(converted, load_table(Path(mapping)) if mapping else None, inputs.get("like"), key)
    with unverified(target, verify) as first:
        written = write_restored(first, converted, back, inputs.get("optimizer"))
        verification = None
        if verify:
            from wdport.exporting.torch_verification import verify_tensors

            where = back.key if optimizer else None
            verification = verify_tensors(converted, first.path, back, inputs.get("like"), where)
            if not passes(verification, target, lambda: copy_file(first.path, target.output), document):
                return verification.exit_code
    name = converted.path.name
    give("export", lambda: _document(name, back, target.path, verification), document,
         lambda: _text(name, back, target.path, written, verification))  # fmt: skip
    return 0


def _document(name: str, back: Restored, path: Path, verification: Verification | None) -> ExportDocument:
    """What was written."""
    from wdport.cli.results import ExportDocument
    from wdport.files.json_document import output_file

    return ExportDocument(
        model=name,
        to="torch",
        output=output_file(path),
        tensors=len(back.tensors),
        prefixes=back.prefixes,
        recomputed=back.recomputed,
        chosen=back.chosen,
        left_out=back.left_out,
        verified=[gate.document() for gate in verification.gates] if verification else UNSET,
    )


def _text(name: str, back: Restored, path: Path, written: int, verification: Verification | None) -> str:
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
