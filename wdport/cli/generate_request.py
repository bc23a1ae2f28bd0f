"""The arguments and options of `wdport generate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from wdport.cli.prompts import TEXTS, TOKENS
from wdport.limits import MAX_STEPS
from wdport.options import FORCE_OUTPUT, JSON, SHA256, Operand, Option
from wdport.shared_types import POLICIES

FORMATS: Final = (".txt", ".json", ".npz")


@dataclass(frozen=True, kw_only=True)
class GenerateRequest:
    """The command's argument and options."""

    model: Annotated[str, Operand(files="converted")]
    texts: Annotated[
        tuple[str, ...],
        Option(
            "A text, with [MASK] for every token to fill in; repeatable.", "TEXT", names=("--text",), group="inputs"
        ),
    ] = ()
    text_file: Annotated[str | None, Option("File with one text per line.", files=TEXTS)] = None
    prompt_ids: Annotated[
        str | None, Option("Token numbers instead of texts: a list of lists (.json), or an array (.npy).", files=TOKENS)
    ] = None
    gap: Annotated[int, Option("Number of tokens for each [MASK] of a prompt.", "N", bounds=(1, 1 << 16))] = 1
    length: Annotated[
        int,
        Option("Number of tokens to append to each prompt.  [default: 0, only fill]", "N", bounds=(0, 1 << 20),
               show_default=False),
    ] = 0  # fmt: skip
    block_length: Annotated[
        int | None,
        Option("Number of tokens per block; the tokens of a block are generated together.  [default: 32 with --length, "
               "otherwise all]", "N",
               bounds=(1, 1 << 20)),
    ] = None  # fmt: skip
    steps: Annotated[
        int | None,
        Option("Maximum number of steps per block.  [default: one per token]", bounds=(1, MAX_STEPS)),
    ] = None
    threshold: Annotated[
        float, Option("Keep a token as soon as its probability exceeds P; 1 disables this.", "P")
    ] = 0.95  # fmt: skip
    edit: Annotated[
        float | None,
        Option("Replace generated tokens with others whose probability exceeds P, for at most 17 steps "
               "after a block is full.  [default: never]", "P"),
    ] = None  # fmt: skip
    temperature: Annotated[
        float, Option("At 0, take the most probable token; above 0, draw tokens.", "T")
    ] = 0.0  # fmt: skip
    top_k: Annotated[
        int | None, Option("Draw from the K most probable tokens.", "K", bounds=(1, MAX_STEPS))
    ] = None  # fmt: skip
    top_p: Annotated[
        float | None, Option("Draw from the most probable tokens whose probabilities add up to P.", "P")
    ] = None
    end: Annotated[str | None, Option("Token that ends a text, given by its number or its name.", "TOKEN")] = None
    forbid: Annotated[
        tuple[str, ...], Option("Token that is never generated, given by its number or its name; repeatable.", "TOKEN")
    ] = ()
    mask: Annotated[
        int | None, Option("Number of the mask token.  [default: the model's]", "N", bounds=(0, MAX_STEPS))
    ] = None
    tokenizer: Annotated[
        str | None, Option("tokenizer.json, or the folder that contains it.  [default: the one in the model's "
                           "file]", files=(".json",),
                           group="model")
    ] = None  # fmt: skip
    seed: Annotated[int, Option("Random seed.", bounds=(0, (1 << 32) - 1))] = 0
    batch: Annotated[
        int | None,
        Option(
            "Number of prompts per network call.  [default: depends on the size of the vocabulary]",
            "N",
            names=("--batch-size",),
            former=("--batch",),
            bounds=(1, 1 << 20),
        ),
    ] = None
    output: Annotated[
        str | None,
        Option("NAME.txt (one text per line), .json or .npz (tokens and steps).  [default: print the texts]",
               files=FORMATS),
    ] = None  # fmt: skip
    animate: Annotated[
        str | None, Option("Write the first texts after every step, as a .gif or as pages of a .txt.",
                           files=(".gif", ".txt"))
    ] = None  # fmt: skip
    dtype: Annotated[
        str, Option("Keras dtype policy of the network.", choices=tuple(POLICIES))
    ] = "float32"  # fmt: skip
    sha256: Annotated[str | None, SHA256] = None
    json_file: Annotated[str | None, JSON] = None
    force: Annotated[bool, FORCE_OUTPUT] = False
