"""`wdport generate`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np

from wdport.base.errors import UsageError, printable
from wdport.base.limits import MAX_STEPS
from wdport.base.options import FORCE_OUTPUT, JSON, SHA256, Interval, Operand, Option
from wdport.base.shared_types import POLICIES
from wdport.cli.click_options import verb
from wdport.cli.console import console, counted, facts, size
from wdport.cli.documents import give, rendered, require_document
from wdport.cli.machine import require_jax, start_jax
from wdport.files.atomic import write_text
from wdport.files.json_document import NamedFile, output_file
from wdport.files.model_target import Target, file_target
from wdport.files.sealed_archive import sealed_archive
from wdport.uses.cli.model_inputs import model_inputs
from wdport.uses.cli.prompts import TEXTS, TOKENS, Prompts, read_prompts
from wdport.uses.roles import Completing

if TYPE_CHECKING:
    from wdport.uses.cli.results import GeneratedDocument
    from wdport.uses.generation import Generated
    from wdport.uses.generation.prompts import Words

FORMATS: Final = (".txt", ".json", ".npz")

NOTHING: Final = -1
"""After the end of a shorter text, in an array."""

SETTINGS: Final = ("length", "block_length", "steps", "threshold", "edit", "temperature", "top_k", "top_p", "seed")
"""Options that :func:`wdport.generate` takes as they are, and that the document states."""


@dataclass(frozen=True, kw_only=True)
class GenerateRequest:
    """The command's argument and options."""

    model: Annotated[str, Operand(files="converted")]
    texts: Annotated[tuple[str, ...], Option(
        "A text, with [MASK] for every token to fill in; repeatable.",
        "TEXT", names=("--text",), group="inputs")] = ()  # fmt: skip
    text_file: Annotated[str | None, Option("File with one text per line.", files=TEXTS)] = None
    prompt_ids: Annotated[str | None, Option(
        "Token ids instead of texts: a list of lists (.json), or an array (.npy).",
        files=TOKENS)] = None  # fmt: skip
    gap: Annotated[int, Option("Number of tokens for each [MASK] in a prompt.", "N", bounds=(1, 1 << 16))] = 1
    length: Annotated[int, Option(
        "Number of tokens to append to each prompt.  [default: 0, only fill]",
        "N", bounds=(0, 1 << 20), show_default=False)] = 0  # fmt: skip
    block_length: Annotated[int | None, Option(
        "Number of tokens per block; the tokens of a block are generated together.  [default: 32 with --length, "
        "otherwise all]", "N", bounds=(1, 1 << 20))] = None  # fmt: skip
    steps: Annotated[int | None, Option(
        "Maximum number of steps per block.  [default: one per token]", bounds=(1, MAX_STEPS))] = None  # fmt: skip
    threshold: Annotated[float, Option(
        "Keep a token as soon as its probability exceeds P; 1 disables this.",
        "P", bounds="from 0 to 1")] = 0.95  # fmt: skip
    edit: Annotated[float | None, Option(
        "Replace generated tokens with others whose probability exceeds P, for at most 17 steps after a block is "
        "full.  [default: never]", "P", bounds="from 0 to 1")] = None  # fmt: skip
    temperature: Annotated[float, Option(
        "At 0, take the most probable token; above 0, draw tokens.", "T", bounds=Interval(0, 1e6))] = 0.0  # fmt: skip
    top_k: Annotated[int | None, Option("Draw from the K most probable tokens.", "K", bounds=(1, MAX_STEPS))] = None
    top_p: Annotated[float | None, Option(
        "Draw from the most probable tokens whose probabilities add up to P.",
        "P", bounds="from 0 to 1")] = None  # fmt: skip
    end: Annotated[str | None, Option("Token that ends a text, given by its id or its name.", "TOKEN")] = None
    forbid: Annotated[tuple[str, ...], Option(
        "Token that is never generated, given by its id or its name; repeatable.", "TOKEN")] = ()  # fmt: skip
    mask: Annotated[int | None, Option(
        "Id of the mask token.  [default: the model's]", "N", bounds=(0, MAX_STEPS))] = None  # fmt: skip
    tokenizer: Annotated[str | None, Option(
        "tokenizer.json, or the folder that contains it.  [default: the one in the model's file]",
        files=(".json",), group="model")] = None  # fmt: skip
    seed: Annotated[int, Option("Random seed.", bounds=(0, (1 << 32) - 1))] = 0
    batch: Annotated[int | None, Option(
        "Number of prompts per network call.  [default: depends on the size of the vocabulary]",
        "N", names=("--batch-size",), former=("--batch",), bounds=(1, 1 << 20))] = None  # fmt: skip
    output: Annotated[str | None, Option(
        "NAME.txt (one text per line), .json or .npz (tokens and steps).  [default: print the texts]",
        files=FORMATS)] = None  # fmt: skip
    animate: Annotated[str | None, Option(
        "Write the state of the first texts after every step, as frames of a .gif or as pages of a .txt.",
        files=(".gif", ".txt"))] = None  # fmt: skip
    dtype: Annotated[str, Option("Keras dtype policy of the network.", choices=tuple(POLICIES))] = "float32"
    sha256: Annotated[str | None, SHA256] = None
    json_file: Annotated[str | None, JSON] = None
    force: Annotated[bool, FORCE_OUTPUT] = False


@verb("generate", GenerateRequest)
def command(request: GenerateRequest) -> None:
    """Fill gaps in texts, or continue texts, with a converted MODEL, a masked language model.

    In each step, the network predicts every missing token of a block, and the most probable predictions are kept.
    """
    from wdport.conversion.load import load_model, open_converted
    from wdport.files.animation import TEXTS as SHOWN
    from wdport.files.animation import frames_target, write_frames

    force, tokenizer, file = request.force, request.tokenizer, request.text_file or request.prompt_ids
    inputs = model_inputs(request.model, request.sha256, prompts=file, tokenizer=tokenizer)
    prompts = read_prompts(request.texts, request.text_file, request.prompt_ids)
    converted = open_converted(request.model)
    if not isinstance(converted.family, Completing):
        what, fix = f"a {converted.family.name} model generates no text", "give a converted masked language model"
        raise UsageError(converted.path, what, f"{fix}; wdport.load_model runs this one")
    target = file_target(Path(request.output), FORMATS, inputs, force) if request.output else None
    moving = frames_target(Path(request.animate), force, inputs) if request.animate else None
    outputs = {"-o": target.path if target else None, "--animate": moving.path if moving else None}
    document = require_document(request.json_file, inputs, outputs, force)
    require_jax()
    start_jax(request.dtype)
    import keras  # noqa: F401  before our modules that need it: importing it imports the ports

    from wdport.uses.generation import generate
    from wdport.uses.generation.api import generator_of

    started = time.monotonic()
    model = load_model(converted.path, request.dtype)
    generator = generator_of(model)
    masked = generator.mask(request.mask)
    words = _words(model, masked, tokenizer, prompts, (request.end, *request.forbid), target)
    texts = () if words is None else [words.encode(text, bool(request.length)) for text in prompts.texts]
    arrays = [np.asarray(tokens, np.int64) for tokens in (*prompts.tokens, *texts)]
    with_gaps: list[Any] = [np.repeat(array, np.where(array == masked, request.gap, 1)) for array in arrays]
    settings: dict[str, Any] = {
        **{name: getattr(request, name) for name in SETTINGS},
        "mask": masked,
        "end": None if request.end is None else _number("--end", request.end, words),
        "forbid": [_number("--forbid", token, words) for token in request.forbid],
    }
    read = None if prompts.file is None else NamedFile(prompts.file.name, inputs.sha256("prompts"))
    inputs.end_reading()
    generated = generate(model, with_gaps, words=words, batch=request.batch, **settings)
    seconds = time.monotonic() - started
    trained, longest = generator.vocabulary.longest, max(map(len, generated.tokens))
    if trained is not None and longest > trained:
        console.note(f"a text has {longest} tokens, and the model was trained on at most {trained}")
    result = document_of(converted.path.name, read, generated, {**settings, "dtype": request.dtype}, seconds)
    if target is not None:
        write_texts(target, result)
        result = replace(result, output=output_file(target.path))
    if moving is not None:
        frame = (lambda tokens: " ".join(map(str, tokens))) if generated.words is None else generated.words.frame
        some = range(min(len(generated), SHOWN))
        write_frames(moving, [[frame(tokens) for tokens in generated.frames(index, masked)] for index in some])
    give("generated", lambda: result, document, lambda: _text(result, target), asked=target is None)


def document_of(
    model: str, prompts: NamedFile | None, generated: Generated, settings: Mapping[str, Any], seconds: float
) -> GeneratedDocument:
    """The completed texts and the settings that they were made with; ``prompts`` is their file."""
    from wdport.uses.cli.results import GeneratedDocument, GeneratedText

    texts = [None] * len(generated) if generated.words is None else generated.texts
    parts = zip(generated.tokens, generated.steps, texts, strict=True)
    completed = [GeneratedText(tokens.tolist(), steps.tolist(), text) for tokens, steps, text in parts]
    return GeneratedDocument(
        model=model, prompts=prompts, output=None, texts=completed, generated=generated.wanted,
        network_calls=generated.calls, **settings, seconds=round(seconds, 3),
    )  # fmt: skip


def _lines(document: GeneratedDocument) -> str:
    """One line per text; without a tokenizer its tokens."""
    return "\n".join(
        " ".join(map(str, text.tokens) if text.text is None else text.text.split("\n")) for text in document.texts
    )


def _text(document: GeneratedDocument, target: Target | None) -> str:
    """The texts, or a short summary if they are in a file."""
    if target is None or document.output is None:
        return _lines(document)
    rows = [
        ("generated", f"{document.generated} tokens by {document.network_calls} network calls"),
        ("took", f"{document.seconds:.1f} s"),
        ("wrote", f"{target.path} ({size(document.output.bytes)})"),
    ]
    return f"{document.model}: {counted(len(document.texts), 'text')}\n{facts(rows)}"


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
    from wdport.uses.generation.api import model_words
    from wdport.uses.generation.prompts import installed

    by_name = any(token is not None and not token.isdecimal() for token in named)
    needed = bool(prompts.texts) or by_name or (target is not None and target.format == "txt")
    words: Words | None = model_words(model, mask, file) if needed or file or installed() else None
    if words is None and needed:
        fix = "give --tokenizer FILE, the tokenizer.json of its folder, or tokens with --prompt-ids"
        raise UsageError("--text" if prompts.texts else "--tokenizer", "the model's file has no tokenizer.json", fix)
    return words


def _number(option: str, token: str, words: Words | None) -> int:
    """The number of a token that is given by number or name."""
    token_id = words.number(token) if words is not None else None
    if token_id is None and token.isascii() and token.isdecimal() and len(token) < 10:
        return int(token)
    if token_id is None:
        raise UsageError(option, f"the tokenizer has no token {printable(token, 40)!r}", "give its number")
    return token_id
