"""The prompts of `wdport generate`: texts of the command line and of a file, or tokens of a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wdport.base.errors import InputError, UsageError, printable
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular_file import read_option
from wdport.models.interface import Array
from wdport.uses.data.numpy_files import read_array
from wdport.uses.data.table import data_file

TEXTS: Final = (".txt",)
TOKENS: Final = (".json", ".npy")
MAX_BYTES: Final = 256 << 20

_TOKENS_FIX: Final = "give a list of lists of tokens (.json), or an array (n, N) of whole numbers (.npy)"


@dataclass(frozen=True)
class Prompts:
    """Texts, or tokens, one prompt each, and the file that they were read from."""

    texts: Sequence[str] = ()
    tokens: Sequence[Array | list[int]] = ()
    file: Path | None = None


def read_prompts(texts: Sequence[str], text_file: str | None, ids: str | None) -> Prompts:
    """The prompts of exactly one of these options; raises :class:`UsageError` and :class:`InputError`."""
    options = [name for name, value in (("--text", texts), ("--text-file", text_file), ("--prompt-ids", ids)) if value]
    if len(options) != 1:
        missing = "is missing, and so are --text-file and --prompt-ids"
        what = f"{' and '.join(options)} are given" if options else missing
        raise UsageError("--text", what, "give one of them")
    if text_file is not None:
        return Prompts(read_lines(Path(text_file)), file=Path(text_file))
    if ids is not None:
        return Prompts(tokens=_tokens(Path(ids)), file=Path(ids))
    return Prompts(texts)


def read_lines(path: Path) -> list[str]:
    """One text a line; empty lines are left out."""
    fix = "give a UTF-8 file with one text on every line"
    try:
        lines = [line for line in read_option(path, MAX_BYTES, fix).decode().splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise InputError(path, "is not UTF-8", fix) from None
    if not lines:
        raise InputError(path, "has no text", fix)
    return lines


def _tokens(path: Path) -> list[Array | list[int]]:
    if path.suffix not in TOKENS:
        raise InputError(path, "is not a .json or .npy file", _TOKENS_FIX)
    prompts = _json(path) if path.suffix == ".json" else _npy(path)
    if not prompts:
        raise InputError(path, "has no prompt", _TOKENS_FIX)
    return prompts


def _json(path: Path) -> list[Array | list[int]]:
    try:
        entries = json.loads(read_option(path, MAX_BYTES, _TOKENS_FIX))
    except (ValueError, RecursionError):
        raise InputError(path, "is not JSON", _TOKENS_FIX) from None
    if not isinstance(entries, list):
        raise InputError(path, "is not a list", _TOKENS_FIX)
    for number, tokens in enumerate(entries):
        if not isinstance(tokens, list):
            raise InputError(path, f"entry {number} is not a list of tokens", _TOKENS_FIX)
        wrong = [token for token in tokens if type(token) is not int or not 0 <= token < 1 << 31]
        if wrong:
            what = f"entry {number} has {printable(repr(wrong[0]), 40)}, which is not a token"
            raise InputError(path, what, _TOKENS_FIX)
    return entries


def _npy(path: Path) -> list[Array | list[int]]:
    with data_file(path) as file, open(file, "rb") as opened:
        try:
            array = read_array(opened, file.stat().st_size)
        except (ValueError, EOFError) as error:
            raise Fault(f"cannot be read ({error})", "save it again with numpy.save") from None
    array = array[None] if array.ndim == 1 else array
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise InputError(path, f"has an array of shape {array.shape} and {array.dtype}", _TOKENS_FIX)
    return list(array)
