"""What the recorder needs to know about the user's own model, from its table and its checkpoint; the Keras model is
neither built nor required."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wdport.base.errors import UsageError
from wdport.base.options import PathText
from wdport.checkpoint import open_checkpoint
from wdport.conversion.prepare import adapt_names, source_of
from wdport.families.registry import own_model
from wdport.mapping.names import NamePattern
from wdport.mapping.rows import Row
from wdport.mapping.ties import omitted_names
from wdport.models.interface import Array
from wdport.recording.inputs import Input


@dataclass(frozen=True)
class Recordable:
    """The PyTorch model and how it is built: ``reference`` is ``module:function``, called with ``arguments``;
    ``tensors`` are its weights, ``calculated`` the names of those that arithmetic converts, ``taps`` the modules that
    the table compares, ``notes`` state how names were changed, and the model need not have the ``spare`` tensors;
    ``carried`` are as for :func:`wdport.recording.user_model.build`."""

    reference: str
    inputs: tuple[Input, ...]
    tensors: Mapping[str, Array]
    arguments: Mapping[str, object]
    calculated: tuple[str, ...]
    taps: tuple[NamePattern, ...]
    notes: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()
    carried: Mapping[str, str] = field(default_factory=dict)

    def is_tapped(self, module: str) -> bool:
        """Return whether a row of the table compares this module."""
        return any(pattern.match(module) is not None for pattern in self.taps)


def recordable(
    checkpoint: PathText,
    mapping: PathText,
    *,
    key: str | None = None,
    reference: str | None = None,
    inputs: Sequence[str] = (),
) -> Recordable:
    """Read the table and the checkpoint; raises :class:`WdportError`."""
    family = own_model(mapping, None, reference, inputs)
    if family is None:
        fix = "leave out `--mapping` and give MODULE:FUNCTION"
        raise UsageError(Path(mapping), "is not a table for your own model", fix)
    if not family.reference:
        fix = "add `torch: MODULE:FUNCTION`, or give MODULE:FUNCTION before the checkpoint"
        raise UsageError(family.table.path, "does not name the PyTorch model", fix)
    rows, declared = family.table.rows, family.told()
    with open_checkpoint(Path(checkpoint), key=key) as opened:
        notes = adapt_names(opened, family.table)
        omitted = omitted_names((row for row in rows if row.when is None), opened.tensors)

        def matched(rows: Iterable[Row]) -> tuple[str, ...]:
            patterns = [pattern for row in rows for pattern in row.torch]
            return tuple(name for name in opened.tensors
                         if any(pattern.match(name) is not None for pattern in patterns))  # fmt: skip

        moved = matched(row for row in rows if row.rules)
        ties = {**omitted}
        ties |= {name: row.same_as.format(indices) for row in rows if row.same_as is not None for name in opened.tensors
                for pattern in row.torch if (indices := pattern.match(name)) is not None}  # fmt: skip
        return Recordable(
            family.reference,
            declared,
            {name: opened.read(omitted.get(name, name)) for name in (*opened.tensors, *omitted)},
            family.arguments(source_of(opened), {}),
            matched(row for row in rows if row.combine),
            tuple(row.torch for row in family.table.taps),
            notes,
            (*matched(row for row in rows if row.drop is not None), *omitted),
            {**{name: name for name in moved}, **{name: same for name, same in ties.items() if same in moved}},
        )
