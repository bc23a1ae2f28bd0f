"""`wdport evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wdport.cli.completion import CONVERTED, SERIES, File
from wdport.cli.console import console
from wdport.cli.documents import give, json_option, require_document
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.options import MODEL, open_sampled, reports, require_reports
from wdport.cli.progress import scores_bar
from wdport.cli.verb import Verb, Whole
from wdport.errors import UsageError, printable
from wdport.files.inputs import InputFiles
from wdport.files.writable import OutputPath

if TYPE_CHECKING:  # they import jax, but the last
    from wdport.evaluation.scores import Evaluation
    from wdport.evaluation.sweep import Sweep
    from wdport.files.json_document import NamedFile
    from wdport.model import Array, KerasModel

SAMPLES = (".npz", ".npy", ".csv")


@click.command(name="evaluate", cls=Verb)
@click.argument("samples", metavar="SAMPLES|MODEL", type=File([*SAMPLES, *CONVERTED]))
@click.option("--data", required=True, metavar="FILE", type=File(SERIES), help="Real data (CSV, NPY, ARFF, MAT), whose "
              "windows are compared.")  # fmt: skip
@click.option("--against", metavar="FILE", type=File(SAMPLES), help="Other samples to score, such as those of the "
              "PyTorch model.")  # fmt: skip
@click.option("--sweep", metavar="SETTINGS", help='Sample from MODEL with several settings and score each: '
              '"ddpm:1000 ddim:20,50 ddim-textbook:eta1:50".  [default for a MODEL: its default sampler]')  # fmt: skip
@click.option("-n", "--count", type=Whole(5, 1 << 24), help="Samples of every setting of --sweep.  [default: 2000]")
@click.option("--scale", metavar="S,S,...|FILE|data", help="Scale of a MODEL's samples, as for wdport sample.  "
              "[default: data, if the model holds it]")  # fmt: skip
@click.option("--unconditional", is_flag=True, help="Call a MODEL without the condition that it can take.")
@click.option("--metrics", metavar="NAME,...", help="context-fid, correlational, discriminative, predictive, dtw-js, "
              "sliced-wasserstein.  [default: all]")  # fmt: skip
@click.option("--repeats", type=Whole(1, 1000), default=5, show_default=True, help="Repetitions of every score, each "
              "with its own random subsets and trainings.")  # fmt: skip
@click.option("--seed", type=Whole(0, (1 << 31) - 1), default=0, show_default=True, help="Random seed.")
@click.option("--encoder", metavar="MODEL", type=MODEL, help="A converted encoder of series, for Context-FID.  "
              "[default: a new one is trained on the data]")  # fmt: skip
@click.option("--html", "html_file", metavar="FILE", type=File([".html"]), help="Also write a page with figures.")
@json_option
@click.option("--force", is_flag=True, help="Replace files that wdport did not write.")
def command(
    samples: str, data: str, against: str | None, sweep: str | None, count: int | None, scale: str | None,
    unconditional: bool, metrics: str | None,
    repeats: int, seed: int, encoder: str | None, html_file: str | None, json_file: str | None, force: bool,
) -> int:  # fmt: skip
    """Score generated series against real ones; smaller is better.

    SAMPLES is a file of wdport sample or another program: series (n, N, F) in the units of the data. A converted MODEL
    is sampled first.
    """
    is_model = sweep is not None or _is_model(Path(samples))
    if count is not None and not is_model:
        raise UsageError("--count", "is for a model", "leave it out: all samples of a file are scored")
    for option, given in (("--scale", scale), ("--unconditional", unconditional)):
        if given and not is_model:
            raise UsageError(option, "is for a model", "leave it out: all samples of a file are scored")
    scales = scale if scale is not None and scale.endswith(".npy") else None
    inputs = InputFiles(samples=samples, data=data, against=against, encoder=encoder, scale=scales)
    inputs.with_manifests("samples", "encoder")
    wanted = reports(("--html", "html", html_file))
    page = require_reports(wanted, inputs, force).get("--html")
    document = require_document(json_file, inputs, {"--html": Path(html_file)} if html_file else {}, force)
    if page is not None:
        from wdport.evaluation.figures import require_figures

        require_figures()
    from wdport.data.samples import read_samples

    sets = {} if is_model else {"samples": read_samples(samples)}
    if against:
        sets["against"] = read_samples(against)
    if is_model:
        open_sampled(samples, None, None)  # refuses a model that is not for sampling
    require_jax()
    start_jax()
    from wdport.cli.draw import condition_of
    from wdport.evaluation.api import chosen_metrics, evaluate
    from wdport.evaluation.document import document_of, text_of
    from wdport.evaluation.sweep import sweep as every

    chosen, swept = chosen_metrics(metrics), None
    own = None if encoder is None else _loaded(encoder)
    with scores_bar() as report:
        if is_model:
            swept = every(_loaded(samples), data, sweep, count or 2000, metrics=chosen, repeats=repeats, seed=seed,
                          encoder=own, more=sets, report=report, unconditional=unconditional,
                          condition=None if scale is None else condition_of("scale", scale))  # fmt: skip
            found = swept.evaluation
        else:
            found = evaluate(sets, data, metrics=chosen, repeats=repeats, seed=seed, encoder=own, report=report)
    inputs.end_reading()
    name = printable(Path(samples).name, None)
    title = f"{name}: {len(found.real)} real windows of {found.shape[0]} steps and {found.shape[1]} features"
    try:
        give("evaluation", lambda: document_of(Path(samples).name, _named(inputs, "data"), found, swept),
             document, lambda: f"{title}\n{text_of(found, swept)}", asked=True)  # fmt: skip
    finally:  # the scores are told first: figures may fail
        if page is not None:
            drawn = swept.samples if swept else {name: each.values for name, each in sets.items()}
            _write_page(page, found, drawn, title, swept)
            if not console.machine and not console.quiet:
                console.show(f"  wrote  {html_file}")
    return 0


def _is_model(path: Path) -> bool:
    """Whether this is a converted model by its name; an ``.npz`` file is one only with --sweep."""
    return path.suffix.lower() not in SAMPLES


def _loaded(path: str) -> KerasModel:
    from wdport.conversion.load import load_model

    return load_model(path)


def _named(inputs: InputFiles, name: str) -> NamedFile:
    from wdport.files.json_document import NamedFile

    return NamedFile(inputs[name].name, inputs.sha256(name))


def _write_page(
    output: OutputPath, found: Evaluation, sets: Mapping[str, Array], title: str, swept: Sweep | None
) -> None:
    from wdport.evaluation.page import page_of
    from wdport.files.atomic import write_text

    if swept is not None:  # those that matter first
        first = [str(swept.full().setting), str(swept.cheapest().setting)]
        sets = {name: sets[name] for name in dict.fromkeys([*first, *sets])}
    write_text(output, page_of(found, sets, title, swept))
