"""Compare two tables, two checkpoints or two converted files by their headers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.located import located
from wdport.conversion.explain import is_converted
from wdport.conversion.load import open_account, open_converted
from wdport.errors import UsageError, printable
from wdport.mapping.diff import Difference, Properties, difference
from wdport.mapping.listing import table_facts, table_listing
from wdport.mapping.table import load_table

Kind = Literal["table", "checkpoint", "converted file"]

_TABLES: Final = (".yaml", ".yml")


def kind_of(path: str | Path) -> Kind:
    """Return the kind of a file, by its name and, for safetensors, by whether it contains a manifest."""
    file = Path(path)
    if file.suffix in _TABLES:
        return "table"
    return "converted file" if is_converted(file) else "checkpoint"


def compare_files(a: str | Path, b: str | Path, keys: tuple[str | None, str | None] = (None, None)) -> Difference:
    """Compare two files of one kind; ``keys`` are those of the state_dicts. Raises ``UsageError`` for two kinds."""
    kinds = kind_of(a), kind_of(b)
    if kinds[0] != kinds[1]:
        for path in (Path(a), Path(b)):
            with located(path):
                path.stat()
        what = f"is a {kinds[1]}, and {printable(Path(a).name or a)} a {kinds[0]}"
        raise UsageError(Path(b), what, "give two files of one kind")
    if kinds[0] == "table":
        tables = load_table(Path(a)), load_table(Path(b))
        facts = table_facts(tables[0]), table_facts(tables[1])
        return difference(table_listing(tables[0]), table_listing(tables[1]), ".", facts)
    if kinds[0] == "converted file":
        return difference(_variables(Path(a)), _variables(Path(b)), "/")
    left, right = _tensors(Path(a), keys[0]), _tensors(Path(b), keys[1])
    return difference(left[0], right[0], ".", (left[1], right[1]))


def _tensors(path: Path, key: str | None) -> tuple[dict[str, Properties], Properties]:
    with open_checkpoint(path, key=key) as checkpoint:
        listing = {name: _properties(info.shape, info.dtype) for name, info in checkpoint.tensors.items()}
        return listing, {"prefix that was left out": "".join(checkpoint.prefixes)}


def _variables(path: Path) -> dict[str, Properties]:
    """Return the variables by the manifest in the file, or, if Keras saved it, by its configuration as float32."""
    account, _ = open_account(path)
    variables = account.variables if account is not None else open_converted(path).variables
    dtypes = account.dtypes if account is not None else {}
    return {name: _properties(shape, dtypes.get(name, "float32")) for name, shape in variables.items()}


def _properties(shape: Sequence[int], dtype: str) -> Properties:
    return {"shape": tuple(shape), "dtype": dtype}
