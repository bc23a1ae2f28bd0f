"""Run `wdport generate`: complete the prompts, write the texts, and report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import keras  # noqa: F401  before our modules that need it: importing it imports the ports
import numpy as np

from wdport.cli.console import facts, size
from wdport.cli.documents import Destination, give, rendered
from wdport.cli.generate_request import GenerateRequest
from wdport.cli.prompts import Prompts
from wdport.cli.results import GeneratedDocument, GeneratedText
from wdport.conversion.load import Converted, load_model
from wdport.errors import UsageError, printable
from wdport.files.animation import TEXTS as SHOWN
from wdport.files.animation import write_frames
from wdport.files.atomic import write_text
from wdport.files.inputs import InputFiles
from wdport.files.json_document import NamedFile, output_file
from wdport.files.model_target import Target
from wdport.files.sealed_archive import sealed_archive
from wdport.generation import Generated, generate
from wdport.generation.program import generator_of, model_words
from wdport.generation.prompts import Words, installed

NOTHING: Final = -1
"""After the end of a shorter text, in an array."""


SETTINGS: Final = ("length", "block_length", "steps", "threshold", "edit", "temperature", "top_k", "top_p", "seed")
"""Options that :func:`wdport.generate` takes as they are, and that the document states."""


def run(
    request: GenerateRequest, inputs: InputFiles, prompts: Prompts, converted: Converted, target: Target | None,
    moving: Target | None, document: Destination,
) -> None:  # fmt: skip
    """Complete the prompts with the model, and write and print the texts."""
    tokenizer = request.tokenizer
    started = time.monotonic()
    model = load_model(converted.path, request.dtype)
    masked = generator_of(model).mask(request.mask)
    end, forbid = request.end, request.forbid
    words = _words(model, masked, tokenizer, prompts, (end, *forbid), target)
    tokens = _with_gaps(prompts, words, masked, request.gap, bool(request.length))
    settings: dict[str, Any] = {
        **{name: getattr(request, name) for name in SETTINGS},
        "mask": masked,
        "end": None if end is None else _number("--end", end, words),
        "forbid": [_number("--forbid", token, words) for token in forbid],
    }
    read = None if prompts.file is None else NamedFile(prompts.file.name, inputs.sha256("prompts"))
    inputs.end_reading()
    generated = generate(model, tokens, words=words, batch=request.batch, **settings)
    seconds = time.monotonic() - started
    result = document_of(converted.path.name, read, generated, {**settings, "dtype": request.dtype}, seconds)
    if target is not None:
        write_texts(target, result)
        result = replace(result, output=output_file(target.path))
    if moving is not None:
        words = generated.words
        frame = words.frame if words is not None else lambda tokens: " ".join(map(str, tokens))
        some = range(min(len(generated), SHOWN))
        write_frames(moving, [[frame(tokens) for tokens in generated.frames(index, masked)] for index in some])
    give("generated", lambda: result, document, lambda: _text(result, target), asked=target is None)


def document_of(
    model: str, prompts: NamedFile | None, generated: Generated, settings: Mapping[str, Any], seconds: float
) -> GeneratedDocument:
    """The completed texts and the settings that they were made with; ``prompts`` is their file."""

    texts = [None] * len(generated) if generated.words is None else generated.texts
    return GeneratedDocument(
        model=model,
        prompts=prompts,
        output=None,
        texts=[
            GeneratedText(tokens.tolist(), steps.tolist(), text)
            for tokens, steps, text in zip(generated.tokens, generated.steps, texts, strict=True)
        ],
        generated=generated.wanted,
        network_calls=generated.calls,
        **settings,
        seconds=round(seconds, 3),
    )


def _lines(document: GeneratedDocument) -> str:
    """One line per text; without a tokenizer its tokens."""
    return "\n".join(
        " ".join(map(str, text.tokens) if text.text is None else text.text.split("\n")) for text in document.texts
    )


def _text(document: GeneratedDocument, target: Target | None) -> str:
    """The texts, or a short summary if they are in a file."""
    if target is None or document.output is None:
        return _lines(document)
    count = len(document.texts)
    rows = [
        ("generated", f"{document.generated} tokens by {document.network_calls} network calls"),
        ("took", f"{document.seconds:.1f} s"),
        ("wrote", f"{target.path} ({size(document.output.bytes)})"),
    ]
    return f"{document.model}: {count} text{'' if count == 1 else 's'}\n{facts(rows)}"


def write_texts(target: Target, document: GeneratedDocument) -> None:
    """Write the texts: a line each, the document, or arrays (n, N) padded with -1."""
    if target.format == "txt":
        write_text(target.output, _lines(document) + "\n")
    elif target.format == "json":
        write_text(target.output, rendered("generated", document) + "\n")
    else:
        lengths = np.array([len(text.tokens) for text in document.texts], np.int32)
        padded: dict[str, Any] = {}
        for name in ("tokens", "steps"):
            padded[name] = np.full((len(lengths), int(lengths.max())), NOTHING, np.int32)
            for row, text in zip(padded[name], document.texts, strict=True):
                row[: len(text.tokens)] = getattr(text, name)
        with sealed_archive(target.output) as file:
            np.savez(file, **padded, lengths=lengths)


def _words(
    model: Any, mask: int, file: str | None, prompts: Prompts, named: Sequence[str | None], target: Target | None
) -> Words | None:
    """The tokenizer; None if it is not needed and not there."""

    by_name = any(token is not None and not token.isdecimal() for token in named)
    needed = bool(prompts.texts) or by_name or (target is not None and target.format == "txt")
    words: Words | None = model_words(model, mask, file) if needed or file or installed() else None
    if words is None and needed:
        fix = "give --tokenizer FILE, the tokenizer.json of its folder, or tokens with --prompt-ids"
        raise UsageError("--text" if prompts.texts else "--tokenizer", "the model's file has no tokenizer.json", fix)
    return words


def _with_gaps(prompts: Prompts, words: Words | None, mask: int, gap: int, goes_on: bool) -> list[Any]:
    """The tokens of all prompts, every mask ``gap`` times."""
    texts = () if words is None else [words.encode(text, goes_on) for text in prompts.texts]
    arrays = [np.asarray(tokens, np.int64) for tokens in (*prompts.tokens, *texts)]
    return [np.repeat(array, np.where(array == mask, gap, 1)) for array in arrays]


def _number(option: str, token: str, words: Words | None) -> int:
    """The number of a token that is given by number or name."""
    token_id = words.number(token) if words is not None else None
    if token_id is None and token.isascii() and token.isdecimal() and len(token) < 10:
        return int(token)
    if token_id is None:
        raise UsageError(option, f"the tokenizer has no token {printable(token, 40)!r}", "give its number")
    return token_id
