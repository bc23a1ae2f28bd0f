"""``python -m parity_tests.suggest``: every pair under every naming, as a table; exit code 1 if one is not sound."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import jax
import torch

import wdport
from wdport.errors import WdportError

from .asking import ask, ask_fresh
from .corpus import PAIRS, Pair
from .fakes import exchange_two, tell_truth
from .names import HOW, How
from .scoring import Score, score, sums_alone
from .weights import checkpoint, randomise

HEAD = ("pair", "names", "exit", "tensors", "right", "by function", "doubt", "wrong", "stated doubts", "error",
        "names + shapes", "seconds", "passes", "cold passes")  # fmt: skip
WITH = {"suggest": ask, "fresh": ask_fresh, "truth": tell_truth, "exchange": exchange_two}


@click.command()
@click.option("--pair", "chosen", multiple=True, type=click.Choice(list(PAIRS)), help="This pair alone; repeatable.")
@click.option("--names", "namings", multiple=True, type=click.Choice(HOW), help="This naming alone; repeatable.")
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@click.option("--with", "source", type=click.Choice(list(WITH)), default="suggest", show_default=True,
              help="Whose answers: the command's, here or in a fresh process, or the bench's own.")  # fmt: skip
@click.option("--truths", is_flag=True, help="Convert and verify random weights by the tables by hand instead.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Copy the suggested tables here.")
def command(
    chosen: Sequence[str], namings: Sequence[How], markdown: bool, source: str, truths: bool, keep: Path | None
) -> None:
    """Score `wdport map suggest` on the pairs."""
    torch.set_num_threads(1)
    jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[2] / ".jax_cache"))
    pairs = [PAIRS[name] for name in chosen or PAIRS]
    if truths:
        failed = [pair.name for pair in pairs if not pair.golden and not verified(pair)]
        click.echo(f"{len(failed)} tables by hand do not verify: {', '.join(failed)}" if failed else "all verify")
        sys.exit(1 if failed else 0)
    scores = []
    _line(HEAD, markdown)
    if markdown:
        _line(["---"] * len(HEAD), markdown)
    for pair in pairs:
        for names in namings or HOW:
            scores.append(_kept(pair, names, source, keep))
            _line(_cells(scores[-1]), markdown)
    unsound = [f"{each.pair} ({each.names})" for each in scores if not each.sound]
    click.echo(f"\n{summary(scores)}")
    for each in scores:
        if each.wrong or each.note:
            click.echo(f"{each.pair} ({each.names}): {each.note} {', '.join(each.wrong)}"[:400])
    sys.exit(1 if unsound else 0)


def verified(pair: Pair) -> bool:
    """Whether random weights converted by the table by hand pass ``wdport verify``, or differ only by the order of
    additions."""
    with TemporaryDirectory(prefix="suggest-") as folder:
        weights = checkpoint(randomise(pair.build_torch(), 3), Path(folder, "model.pt"))
        port = wdport.Port(pair.truth)
        try:
            port.convert(weights, Path(folder, "model.weights.h5"))
            verdict = port.verify(weights, Path(folder, "model.weights.h5"))
            return bool(verdict) or sums_alone(verdict.to_json())
        except WdportError as error:
            click.echo(f"{pair.name}: {error}")
            return False


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


def _kept(pair: Pair, names: How, source: str, keep: Path | None) -> Score:
    def asked(pair: Pair, names: How, output: Path):  # type: ignore[no-untyped-def]
        answer = WITH[source](pair, names, output)
        if keep is not None and answer.table is not None:
            keep.mkdir(parents=True, exist_ok=True)
            Path(keep, f"{pair.name}-{names}.yaml").write_bytes(answer.table.read_bytes())
        return answer

    return score(pair, names, asked)


def _cells(each: Score) -> list[str]:
    return [
        each.pair, each.names, str(each.code), str(each.tensors), str(each.right), str(each.by_function),
        str(each.doubt), str(len(each.wrong)), str(each.doubts), f"{each.error:.1e}", f"{each.matching:.0%}",
        f"{each.answer.seconds:.1f}", f"{each.times:.0f}", f"{each.times_cold:.1f}",
    ]  # fmt: skip


def _line(cells: Sequence[str], markdown: bool) -> None:
    widths = (12, 12, 4, 7, 5, 11, 5, 5, 13, 8, 14, 7, 6, 11)
    if markdown:
        click.echo(f"| {' | '.join(cells)} |")
    else:
        click.echo(" ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


if __name__ == "__main__":
    command()
