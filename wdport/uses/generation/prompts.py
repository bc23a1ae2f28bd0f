"""Texts to tokens and back by a ``tokenizer.json``, and prompts of any length, with gaps anywhere, arranged in one
batch.

A network with explicit positions reads tokens in any order. So filling a gap and continuing a text are the same task:
the wanted tokens of every sample are contiguous, logits are computed only for them, and a sample's arrangement depends
on the others only by its padding.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from wdport.base.errors import InputError, MachineError, UsageError, printable
from wdport.base.limits import MAX_KEPT_BYTES
from wdport.checkpoint.regular_file import read_option
from wdport.models.interface import Array, KerasModel, Vocabulary
from wdport.uses.roles import Completing

GAP: Final = "[MASK]"
"""Text of the mask token in a prompt, whatever its name in the tokenizer is."""

OPEN: Final = "░"
"""Text of a wanted token in a frame."""

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
        return int(self._tokenizer.get_vocab_size())

    def encode(self, text: str, goes_on: bool) -> Array:
        """The tokens of a text, with those that the tokenizer puts around it; if it ``goes_on``, none after it."""
        text = text.replace(GAP, str(self.named))
        tokens = list(self._tokenizer.encode(text).ids)
        # A tokenizer may put special tokens around a text: those in front stay, those after it would end the text.
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
        # The mask token is special too, but it is the one to be shown.
        numbers = [int(token) for token in tokens if int(token) == self.mask or int(token) not in self._special]
        return str(self._tokenizer.decode(numbers, skip_special_tokens=False)).replace(str(self.named), OPEN)

    def number(self, token: str) -> int | None:
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


BLOCK: Final = 32
"""Tokens of a block if ``length`` is given, as in the library; fewer, if no sample wants as many, are the same."""

ROUNDED: Final = 16
"""Given tokens are padded to a multiple of this, and wanted ones without blocks, so that few programs are compiled."""


@dataclass(frozen=True)
class Arranged:
    """Prompts as arrays (B, N), N = ``start`` + blocks of ``block`` tokens.

    Before ``start`` are the given tokens of each sample, padded on the left; from there on its wanted tokens, as
    ``mask``, padded on the right. ``positions`` are the tokens' places in the text, ``visible`` is false for padding.
    """

    tokens: Array
    visible: Array
    positions: Array
    start: int
    block: int
    mask: int

    def __getitem__(self, rows: slice) -> Arranged:
        parts = self.tokens[rows], self.visible[rows], self.positions[rows]
        return Arranged(*parts, self.start, self.block, self.mask)

    def texts(self, values: Array) -> list[Array]:
        """The ``values`` (B, N) of each sample's tokens in the order of its text."""
        ordered = []
        for row, visible, places in zip(values, self.visible, self.positions, strict=True):
            text = np.empty(int(visible.sum()), values.dtype)
            text[places[visible]] = row[visible]
            ordered.append(text)
        return ordered


def read_prompts(prompts: Iterable[Sequence[int] | Array], vocabulary: Vocabulary) -> list[Array]:
    """Prompts as int32 arrays; raises :class:`UsageError` naming the first that is not of this vocabulary."""
    arrays = []
    for number, prompt in enumerate(prompts):
        try:
            array = np.asarray(prompt)
        except ValueError as error:
            raise UsageError(f"prompts[{number}]", f"is not a list of tokens ({error})", "give whole numbers") from None
        if array.size == 0:
            array = array.reshape(-1).astype(np.int32)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            what = f"has shape {array.shape} and dtype {array.dtype}"
            raise UsageError(f"prompts[{number}]", what, "give one list of whole numbers per prompt")
        if array.size and not 0 <= int(array.min()) <= int(array.max()) < vocabulary.size:
            wrong = int(array.min()) if array.min() < 0 else int(array.max())
            fix = f"the model has tokens from 0 to {vocabulary.size - 1}"
            raise UsageError(f"prompts[{number}]", f"has the token {wrong}", fix)
        arrays.append(array.astype(np.int32))
    if not arrays:
        raise UsageError("prompts", "there are none", "give at least one list of tokens")
    return arrays


def arranged(prompts: Sequence[Array], mask: int, length: int, block: int | None) -> Arranged:
    """Arrange ``prompts``, each with ``length`` wanted tokens after it; in blocks of ``block``, by default of
    :data:`BLOCK` if there is a ``length`` and otherwise all in one."""
    texts = [np.concatenate([prompt, np.full(length, mask, np.int32)]) for prompt in prompts]
    open_masks = [text == mask for text in texts]
    largest = max(int(open_mask.sum()) for open_mask in open_masks)
    # All given tokens come before all wanted ones; the positions keep the order of the text.
    start = _multiple(max(int((~open_mask).sum()) for open_mask in open_masks), ROUNDED)
    size = block or (min(BLOCK, largest) if length else _multiple(largest, ROUNDED))
    shape = (len(texts), start + _multiple(largest, size))
    # Padding must not be the mask, which would be filled: token 0, or 1 if 0 is the mask.
    tokens = np.full(shape, int(mask == 0), np.int32)
    visible, positions = np.zeros(shape, bool), np.zeros(shape, np.int32)
    for row, (text, open_) in enumerate(zip(texts, open_masks, strict=True)):
        fixed_places, open_places = np.flatnonzero(~open_), np.flatnonzero(open_)
        for places, first in ((fixed_places, start - len(fixed_places)), (open_places, start)):
            part = slice(first, first + len(places))
            tokens[row, part], visible[row, part], positions[row, part] = text[places], True, places
    return Arranged(tokens, visible, positions, start, size, mask)


def _multiple(count: int, of: int) -> int:
    return -(-count // of) * of
