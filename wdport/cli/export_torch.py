"""`wdport export --to torch`: a converted model back to the tensors of its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
from click.core import ParameterSource

from wdport.cli.options import facts, size
from wdport.errors import UsageError
from wdport.files.writable import by_name, with_manifests

OTHERS = ("what", "platforms", "batch", "sampler", "steps", "eta", "dtype", "precision", "pad_widths")
"""Options of programs, which a file of tensors does not have."""


def export_torch(
    model: str, output: str | None, mapping: str | None, function: str | None, like: str | None, key: str | None,
    force: bool,
) -> str:  # fmt: skip
    """Write the file; what there is to say of it."""
    _require_none_of_programs()
    from wdport.conversion.back import restored
    from wdport.conversion.load import open_converted
    from wdport.exporting.torch_file import torch_target, write_tensors
    from wdport.families.choice import own_model
    from wdport.files.target import stem_of
    from wdport.mapping.table import load_table

    converted = open_converted(model, own_model(mapping, function, None, ()))
    path = Path(output) if output else converted.path.with_name(f"{stem_of(converted.path)}.torch.safetensors")
    inputs = with_manifests(by_name(model=model, mapping=mapping, like=like), ["model"])
    target = torch_target(path, inputs, force)
    back = restored(converted, load_table(Path(mapping)) if mapping else None, Path(like) if like else None, key)
    written = write_tensors(target, back.tensors)
    rows = [
        ("tensors", f"{len(back.tensors)} of the checkpoint's names, shapes and dtypes"),
        ("names", f"without the prefix {' and '.join(back.prefixes)} of the checkpoint" if back.prefixes else ""),
        ("recomputed", f"{len(back.recomputed)} tables, by their formulas; --like gives the stored ones"
         if back.recomputed else ""),
        ("by choice", f"{len(back.chosen)} that arithmetic joined, equal in function" if back.chosen else ""),
        ("left out", _left_out(back.left_out)),
        ("wrote", f"{target.path} ({size(written)})"),
    ]  # fmt: skip
    return f"{converted.path.name}: back in PyTorch's layout\n{facts(rows)}"


def _left_out(names: Mapping[str, str]) -> str:
    if not names:
        return ""
    shown = ", ".join(list(names)[:3]) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} that the conversion dropped ({shown}); --like gives them"


def _require_none_of_programs() -> None:
    context = click.get_current_context()
    for name in OTHERS:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(option, "is of programs, and --to torch writes tensors", "leave it out")
