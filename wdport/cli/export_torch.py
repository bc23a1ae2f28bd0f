"""`wdport export --to torch`: the tensors of the checkpoint from a converted model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from wdport.cli.console import facts, size
from wdport.cli.documents import give, require_document
from wdport.cli.verification import export_document, passes, unverified, verified_row
from wdport.conversion.inverse import Restored, restored
from wdport.conversion.load import open_converted
from wdport.errors import printable
from wdport.exporting.to_torch import torch_output, verify_tensors, write_restored
from wdport.exporting.verification import Verification
from wdport.families.registry import own_model
from wdport.files.atomic import copy_file
from wdport.files.inputs import InputFiles
from wdport.mapping.table import load_table

if TYPE_CHECKING:
    from wdport.cli.export import ExportRequest


def export_torch(request: ExportRequest, inputs: InputFiles) -> int:
    """Write PyTorch tensors and print a summary."""
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
            if not passes(verification, target, lambda: copy_file(first.path, target.output), document):
                return verification.exit_code
    name = converted.path.name
    described = {field: getattr(back, field) for field in ("prefixes", "recomputed", "chosen", "left_out")}
    described["tensors"] = len(back.tensors)
    give("export", lambda: export_document(name, "torch", target.path, verification, **described), document,
         lambda: _torch_text(name, back, target.path, written, verification))  # fmt: skip
    return 0


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
