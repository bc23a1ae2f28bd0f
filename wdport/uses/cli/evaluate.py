"""`wdport evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from wdport.base.errors import printable
from wdport.base.options import FORCE, JSON, Operand, Option
from wdport.cli.click_options import refuse, verb
from wdport.cli.completion import CONVERTED
from wdport.cli.console import console, scores_bar
from wdport.cli.documents import give, reports, require_document, require_reports
from wdport.cli.machine import require_jax, start_jax
from wdport.files.inputs import InputFiles
from wdport.uses.cli.model_inputs import open_sampled

if TYPE_CHECKING:
    from wdport.uses.evaluation.document import EvaluationDocument

SAMPLES = (".npz", ".npy", ".csv")


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest:
    """The command's argument and options."""

    samples: Annotated[str, Operand(metavar="SAMPLES|MODEL", files=(*SAMPLES, *CONVERTED))]
    data: Annotated[str, Option(
        "Real data (CSV, NPY, ARFF, MAT), whose windows are compared with the samples.", files="series")]  # fmt: skip
    against: Annotated[str | None, Option(
        "Other samples to score, such as those of the PyTorch model.",
        names=("--other-samples",), former=("--against",), files=SAMPLES)] = None  # fmt: skip
    sweep: Annotated[str | None, Option(
        'Sample from MODEL with several settings and score each: "ddpm:1000 ddim:20,50 ddim-textbook:eta1:50".  '
        "[default for a MODEL: its default sampler]", "SETTINGS")] = None  # fmt: skip
    count: Annotated[int | None, Option(
        "Number of samples for every setting of --sweep.  [default: 2000]",
        names=("-n", "--count"), bounds=(5, 1 << 24))] = None  # fmt: skip
    scale: Annotated[str | None, Option(
        "Scale of a MODEL's samples, as for wdport sample.  [default: data, if MODEL contains scales]",
        "S,S,...|FILE|data")] = None  # fmt: skip
    unconditional: Annotated[bool, Option("Draw without a condition, even if MODEL can take one.")] = False
    metrics: Annotated[str | None, Option(
        "context-fid, correlational, discriminative, predictive, dtw-js, sliced-wasserstein.  [default: all]",
        "NAME,...")] = None  # fmt: skip
    repeats: Annotated[int, Option(
        "Number of repetitions of every score, each with its own random subsets and training runs.",
        bounds=(1, 1000))] = 5  # fmt: skip
    seed: Annotated[int, Option("Random seed.", bounds=(0, (1 << 31) - 1))] = 0
    encoder: Annotated[str | None, Option(
        "A converted series encoder, for Context-FID.  [default: train a new one on the data]",
        "MODEL", files="converted")] = None  # fmt: skip
    html_file: Annotated[str | None, Option(
        "Also write a page with figures.", names=("--html",), files=(".html",))] = None  # fmt: skip
    json_file: Annotated[str | None, JSON] = None
    force: Annotated[bool, FORCE] = False


@verb("evaluate", EvaluateRequest)
def command(request: EvaluateRequest) -> None:
    """Score generated series against real ones; smaller is better.

    SAMPLES is a file from wdport sample or another program: series (n, N, F) in the units of the data. A converted
    MODEL is sampled first.
    """
    samples, data, scale, encoder = request.samples, request.data, request.scale, request.encoder
    # An .npz file is a converted model only with --sweep.
    is_model = request.sweep is not None or Path(samples).suffix.lower() not in SAMPLES
    if not is_model:
        fix = "leave it out: all samples of a file are scored"
        refuse(request, ("count", "scale", "unconditional"), "is for a model", fix)
    scales = scale if scale is not None and scale.endswith(".npy") else None
    inputs = InputFiles(samples=samples, data=data, against=request.against, encoder=encoder, scale=scales)
    inputs.with_manifests("samples", "encoder")
    page = require_reports(reports(html=request.html_file), inputs, request.force).get("--html")
    document = require_document(request.json_file, inputs, {"--html": page.path if page else None}, request.force)
    if page is not None:
        from wdport.uses.evaluation.figures import require_figures

        require_figures()
    from wdport.uses.data.samples_reader import read_samples

    sets = {} if is_model else {"samples": read_samples(samples)}
    if request.against:
        sets["against"] = read_samples(request.against)
    if is_model:
        open_sampled(samples, None, None)  # refuses a model that is not for sampling
    require_jax()
    start_jax()
    from wdport.conversion.load import load_model
    from wdport.files.json_document import NamedFile
    from wdport.uses.cli.sample import condition_of
    from wdport.uses.evaluation.api import chosen_metrics, evaluate
    from wdport.uses.evaluation.document import document_of, text_of
    from wdport.uses.evaluation.sweep import sweep as every

    chosen_metrics(request.metrics)  # refuses an unknown one before anything is drawn
    swept = None
    encoder_model = None if encoder is None else load_model(encoder)
    with scores_bar() as report:
        settings: dict[str, Any] = {"metrics": request.metrics, "repeats": request.repeats, "seed": request.seed,
                                    "encoder": encoder_model, "report": report}  # fmt: skip
        if is_model:
            condition = None if scale is None else condition_of("scale", scale)
            swept = every(load_model(samples), data, request.sweep, request.count or 2000, more=sets,
                          condition=condition, unconditional=request.unconditional, **settings)  # fmt: skip
            evaluation = swept.evaluation
        else:
            evaluation = evaluate(sets, data, **settings)
    inputs.end_reading()
    name, (length, features) = Path(samples).name, evaluation.shape[:2]
    windows = f"{len(evaluation.real)} real windows of {length} steps and {features} features"
    title = f"{printable(name, None)}: {windows}"

    def content() -> EvaluationDocument:
        return document_of(name, NamedFile(inputs["data"].name, inputs.sha256("data")), evaluation, swept)

    try:
        give("evaluation", content, document, lambda: f"{title}\n{text_of(evaluation, swept)}", asked=True)
    finally:  # the scores are printed first: figures may fail
        if page is not None:
            from wdport.files.atomic import write_text
            from wdport.uses.evaluation.figures import page_of

            if swept is None:
                drawn = {label: sample_set.values for label, sample_set in sets.items()}
            else:  # those that matter first
                first = [str(swept.full().setting), str(swept.cheapest().setting)]
                drawn = {label: swept.samples[label] for label in dict.fromkeys([*first, *swept.samples])}
            write_text(page, page_of(evaluation, drawn, title, swept))
            console.account(f"  wrote  {request.html_file}")
