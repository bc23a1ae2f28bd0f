"""``python -m parity_tests.suggest``: every pair under every naming, as a table; exit code 1 if one is not sound."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import jax
import torch

from .corpus import PAIRS
from .names import HOW, How
from .scoring import Score, score

HEAD = ("pair", "names", "exit", "tensors", "right", "by function", "doubt", "wrong", "stated doubts", "error",
        "names + shapes", "seconds")  # fmt: skip
WIDTHS = (12, 12, 4, 7, 5, 11, 5, 5, 13, 8, 14, 7)


@click.command()
@click.option("--pair", "chosen", multiple=True, type=click.Choice(list(PAIRS)), help="This pair alone; repeatable.")
@click.option("--names", "namings", multiple=True, type=click.Choice(HOW), help="This naming alone; repeatable.")
def command(chosen: Sequence[str], namings: Sequence[How]) -> None:
    """Score `wdport map suggest` on the pairs."""
    torch.set_num_threads(1)
    jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[2] / ".jax_cache"))
    scores = []
    _line(HEAD)
    for pair in chosen or PAIRS:
        for names in namings or HOW:
            scores.append(score(pair, names))
            _line(_cells(scores[-1]))
    click.echo(f"\n{summary(scores)}")
    for each in scores:
        if each.wrong or each.note:
            click.echo(f"{each.pair} ({each.names}): {each.note} {', '.join(each.wrong)}"[:400])
    sys.exit(0 if all(each.sound for each in scores) else 1)


def summary(scores: Sequence[Score]) -> str:
    """The counts that the demand is about."""
    total = sum(each.tensors for each in scores)
    right = sum(each.right + each.by_function for each in scores)
    wrong = sum(len(each.wrong) for each in scores)
    proved = sum(each.code == 0 for each in scores)
    sound = sum(each.sound for each in scores)
    return (
        f"{len(scores)} runs, {sound} sound, {proved} proved by the command; {total} tensors, {right} right,"
        f" {total - right - wrong} in doubt, {wrong} wrong without a doubt"
    )


def _cells(each: Score) -> list[str]:
    return [
        each.pair, each.names, str(each.code), str(each.tensors), str(each.right), str(each.by_function),
        str(each.doubt), str(len(each.wrong)), str(each.doubts), f"{each.error:.1e}", f"{each.matching:.0%}",
        f"{each.answer.seconds:.1f}",
    ]  # fmt: skip


def _line(cells: Sequence[str]) -> None:
    click.echo(" ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip())


if __name__ == "__main__":
    command()
