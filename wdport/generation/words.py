"""Texts to tokens and back, by the ``tokenizer.json`` of the library's tokenizers."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from wdport.checkpoint.regular import read_option
from wdport.errors import InputError, MachineError, UsageError, printable
from wdport.families.roles import Completing
from wdport.limits import MAX_KEPT_BYTES
from wdport.model import Array, KerasModel

GAP: Final = "[MASK]"
"""Stands for the mask token in any text, whatever the tokenizer calls it."""

OPEN: Final = "░"
"""Stands for a wanted token in a frame."""

_FILE: Final = "tokenizer.json"
_GIVE: Final = "give the tokenizer.json of the model's folder"


class Words:
    """A tokenizer, and the number of the mask token."""

    def __init__(self, tokenizer: Any, mask: int, where: str | Path) -> None:
        self._tokenizer = tokenizer
        self.mask = mask
        self.named: str | None = tokenizer.id_to_token(mask)
        if self.named is None:
            raise InputError(where, f"has no token {mask}, which is the mask token", "give the model's own tokenizer")
        self._special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        if mask not in self._special:
            what = f"has the ordinary token {printable(self.named, 40)!r} as {mask}, which is the mask token"
            raise InputError(where, what, "give the model's own tokenizer")

    @property
    def count(self) -> int:
        """The number of tokens."""
        return int(self._tokenizer.get_vocab_size())

    def encode(self, text: str, goes_on: bool) -> Array:
        """The tokens of a text, with those that the tokenizer puts around it; if it ``goes_on``, none after it."""
        text = text.replace(GAP, str(self.named))
        tokens = list(self._tokenizer.encode(text).ids)
        if goes_on:
            plain = list(self._tokenizer.encode(text, add_special_tokens=False).ids)
            ends = [start + len(plain) for start in range(len(tokens)) if tokens[start : start + len(plain)] == plain]
            tokens = tokens[: ends[0]] if ends else plain
        return np.array(tokens, np.int32)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self._tokenizer.decode([int(token) for token in tokens], skip_special_tokens=True))

    def frame(self, tokens: Iterable[int]) -> str:
        """The same with :data:`OPEN` for mask tokens."""
        numbers = [int(token) for token in tokens if int(token) == self.mask or int(token) not in self._special]
        return str(self._tokenizer.decode(numbers, skip_special_tokens=False)).replace(str(self.named), OPEN)

    def number(self, token: str) -> int | None:
        """The number of a token that is given by its name."""
        token_id: int | None = self._tokenizer.token_to_id(token)
        return token_id


def words_of(model: KerasModel, family: Completing, mask: int, file: str | PathLike[str] | None = None) -> Words | None:
    """The tokenizer in a ``file`` or its folder, otherwise the one that the model keeps; None if it keeps none.

    Raises :class:`InputError` for a damaged file, and :class:`MachineError` if tokenizers is not installed.
    """
    if file is None:
        text, where = family.tokenizer(model), Path(_FILE)
    else:
        where = Path(file) / _FILE if Path(file).is_dir() else Path(file)
        text = _text(where)
    if not text:
        return None
    if not installed():
        raise MachineError("tokenizers", "is not installed, and texts need it", "install wdport[text], or give tokens")
    try:
        tokenizer = importlib.import_module("tokenizers").Tokenizer.from_str(text)
    except Exception as error:  # the library has no class of its own for them
        raise InputError(where, f"is not a tokenizer ({str(error)[:80]})", _GIVE) from None
    return Words(tokenizer, mask, where)


def installed() -> bool:
    """Whether the library is installed."""
    return importlib.util.find_spec("tokenizers") is not None


def require_words(words: Words | None, where: str) -> Words:
    """The tokenizer; raises :class:`UsageError` if there is none."""
    if words is None:
        raise UsageError(where, "the model keeps no tokenizer.json", f"{_GIVE} as tokenizer, or give tokens")
    return words


def _text(file: Path) -> str:
    try:
        return read_option(file, MAX_KEPT_BYTES, _GIVE).decode()
    except UnicodeDecodeError:
        raise InputError(file, "is not UTF-8", _GIVE) from None
