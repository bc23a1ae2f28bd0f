"""`wdport generate`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wdport.cli.completion import File
from wdport.cli.documents import give, json_option, require_document
from wdport.cli.generated import FORMATS, Done, output_target, write_texts
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.options import MODEL, sha256_option
from wdport.cli.prompts import TEXTS, TOKENS, Prompts, read_prompts
from wdport.cli.verb import OneOf, Verb, Whole
from wdport.errors import UsageError, printable
from wdport.files.inputs import InputFiles
from wdport.files.writable import require_apart
from wdport.limits import MAX_STEPS

if TYPE_CHECKING:  # imports jax
    from wdport.conversion.load import Converted
    from wdport.generation.words import Words

DTYPES = ("float32", "bfloat16", "mixed_bfloat16")
MOST = MAX_STEPS


@click.command(name="generate", cls=Verb)
@click.argument("model", type=MODEL)
@click.option("--text", "texts", metavar="TEXT", multiple=True, help="A text, with [MASK] for every token that is "
              "wanted; repeatable.")  # fmt: skip
@click.option("--text-file", metavar="FILE", type=File(TEXTS), help="One text on every line.")
@click.option("--prompt-ids", metavar="FILE", type=File(TOKENS), help="Tokens instead: a list of lists (.json), or an "
              "array (.npy).")  # fmt: skip
@click.option("--gap", type=Whole(1, 1 << 16), default=1, show_default=True, metavar="N", help="Tokens for each "
              "[MASK] of a prompt.")  # fmt: skip
@click.option("--length", type=Whole(0, 1 << 20), default=0, metavar="N", help="Tokens to write behind every prompt.  "
              "[default: 0, only fill]")  # fmt: skip
@click.option("--block-length", type=Whole(1, 1 << 20), metavar="N", help="Wanted tokens that are refined together.  "
              "[default: 32 with --length, otherwise all]")  # fmt: skip
@click.option("--steps", type=Whole(1, MOST), help="Steps in which a block is filled at the latest.  "
              "[default: one per token]")  # fmt: skip
@click.option("--threshold", type=float, default=0.95, show_default=True, metavar="P", help="Keep tokens with a "
              "probability above this earlier; 1 for never.")  # fmt: skip
@click.option("--edit", type=float, metavar="P", help="Replace generated tokens by others with a probability above "
              "this, for at most 17 steps after a block is full.  [default: never]")  # fmt: skip
@click.option("--temperature", type=float, default=0.0, show_default=True, metavar="T", help="0 takes the most "
              "probable token; above, tokens are drawn.")  # fmt: skip
@click.option("--top-k", type=Whole(1, MOST), metavar="K", help="Draw from the K most probable tokens.")
@click.option("--top-p", type=float, metavar="P", help="Draw from the most probable tokens that together have this "
              "probability.")  # fmt: skip
@click.option("--end", metavar="TOKEN", help="Token that ends a text: its number, or its name.")
@click.option("--forbid", metavar="TOKEN", multiple=True, help="Token that is never generated: number or name; "
              "repeatable.")  # fmt: skip
@click.option("--mask", type=Whole(0, MOST), metavar="N", help="Number of the mask token.  [default: the model's]")
@click.option("--tokenizer", metavar="FILE", type=File([".json"]), help="tokenizer.json, or its folder.  "
              "[default: the one in the model's file]")  # fmt: skip
@click.option("--seed", type=Whole(0, (1 << 32) - 1), default=0, show_default=True, help="Random seed.")
@click.option("--batch", type=Whole(1, 1 << 20), metavar="N", help="Prompts per call of the network.  [default: by "
              "the size of the vocabulary]")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", type=File(FORMATS), help="NAME.txt (a text on every line), .json or "
              ".npz (tokens and steps).  [default: print the texts]")  # fmt: skip
@click.option("--animate", metavar="FILE", type=File([".gif", ".txt"]), help="The first texts after every step, as a "
              ".gif or as pages of a .txt.")  # fmt: skip
@click.option("--dtype", type=OneOf(DTYPES), default="float32", show_default=True, help="Keras dtype policy.")
@sha256_option
@json_option
@click.option("--force", is_flag=True, help="Replace an existing output, but never a symbolic link.")
def command(
    model: str,
    texts: tuple[str, ...],
    text_file: str | None,
    prompt_ids: str | None,
    gap: int,
    end: str | None,
    forbid: tuple[str, ...],
    mask: int | None,
    tokenizer: str | None,
    output: str | None,
    animate: str | None,
    dtype: str,
    sha256: str | None,
    json_file: str | None,
    force: bool,
    **settings: Any,
) -> int:
    """Complete texts with a converted MODEL, a masked language model: fill their gaps, and write on.

    In every step the network predicts all wanted tokens of a block, and the most probable are kept.
    """
    from wdport.checkpoint.known import require_sha256
    from wdport.files.text_frames import TEXTS as SHOWN
    from wdport.files.text_frames import frames_target, write_frames

    inputs = InputFiles(model=model, prompts=text_file or prompt_ids, tokenizer=tokenizer).with_manifests("model")
    prompts = read_prompts(texts, text_file, prompt_ids)
    inputs.check(partial(require_sha256, model, sha256))
    converted = _opened(model)
    target = output_target(Path(output), inputs, force) if output else None
    moving = frames_target(Path(animate), force, inputs) if animate else None
    named = {option: each.path for option, each in (("-o", target), ("--animate", moving)) if each}
    require_apart(named.items(), {})
    document = require_document(json_file, inputs, named, force)
    require_jax()
    start_jax()
    from wdport.conversion.load import load_model
    from wdport.files.json_document import NamedFile
    from wdport.generation import generate
    from wdport.generation.program import generator_of

    started = time.monotonic()
    made = load_model(converted.path, dtype)
    masked = generator_of(made).mask(mask)
    words = _words(made, masked, tokenizer, prompts, (end, *forbid), target)
    tokens = _with_gaps(prompts, words, masked, gap, bool(settings["length"]))
    numbers: dict[str, Any] = {"end": None if end is None else _number("--end", end, words),
               "forbid": [_number("--forbid", each, words) for each in forbid]}  # fmt: skip
    read = None if prompts.file is None else NamedFile(prompts.file.name, inputs.sha256("prompts"))
    inputs.end_reading()
    found = generate(made, tokens, mask=masked, words=words, **numbers, **settings)
    told = {"mask": masked, **numbers, **settings, "dtype": dtype}
    told.pop("batch")
    done = Done(converted.path.name, read, found, told, time.monotonic() - started, target)
    if target is not None:
        write_texts(target, done)
    if moving is not None:
        write_frames(moving, [done.frames(at, masked) for at in range(min(len(found), SHOWN))])
    give("generated", done.document, document, done.text, asked=target is None)
    return 0


def _opened(model: str) -> Converted:
    """Open a converted language model; raises :class:`UsageError` for other models."""
    from wdport.conversion.load import open_converted
    from wdport.families.roles import Completing

    converted = open_converted(model)
    if not isinstance(converted.family, Completing):
        what = f"a {converted.family.name} model generates no text"
        raise UsageError(converted.path, what, "give a converted masked language model; wdport.load_model runs this")
    return converted


def _words(
    model: Any, mask: int, file: str | None, prompts: Prompts, named: Sequence[str | None], target: Any
) -> Words | None:
    """The tokenizer; None if it is not needed and not there."""
    from wdport.generation.program import model_words
    from wdport.generation.words import installed

    by_name = any(each is not None and not each.isdecimal() for each in named)
    needed = bool(prompts.texts) or by_name or (target is not None and target.format == "txt")
    words: Words | None = model_words(model, mask, file) if needed or file or installed() else None
    if words is None and needed:
        fix = "give --tokenizer FILE, the tokenizer.json of its folder, or tokens with --prompt-ids"
        raise UsageError("--text" if prompts.texts else "--tokenizer", "the model's file has no tokenizer.json", fix)
    return words


def _with_gaps(prompts: Prompts, words: Words | None, mask: int, gap: int, goes_on: bool) -> list[Any]:
    """The tokens of all prompts, every mask ``gap`` times."""
    import numpy as np

    texts = () if words is None else [words.encode(each, goes_on) for each in prompts.texts]
    arrays = [np.asarray(each, np.int64) for each in (*prompts.tokens, *texts)]
    return [np.repeat(each, np.where(each == mask, gap, 1)) for each in arrays]


def _number(option: str, token: str, words: Words | None) -> int:
    """The number of a token that is given by number or name."""
    found = words.number(token) if words is not None else None
    if found is None and token.isascii() and token.isdecimal() and len(token) < 10:
        return int(token)
    if found is None:
        raise UsageError(option, f"the tokenizer has no token {printable(token, 40)!r}", "give its number")
    return found
