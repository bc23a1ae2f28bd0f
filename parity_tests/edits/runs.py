"""What is verified under an edit: a folder of pairs, and by family the runs from the cheapest to the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wdport.families.registry import shipped
from wdport.families.roles import Edited, Faulty
from wdport.parity.selftest.specimen import Specimen

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"


@dataclass(frozen=True)
class Run:
    """One call: ``verify`` are its arguments, or ``export`` those of an export whose artefact is verified."""

    name: str
    checkpoint: str
    converted: str
    verify: Mapping[str, Any] = field(default_factory=dict)
    export: Mapping[str, Any] | None = None
    convert: Mapping[str, Any] | None = None

    def job(self, tree: Path, result: Path) -> dict[str, Any]:
        """What the process is told."""
        return {**asdict(self), "tree": str(tree), "result": str(result)}


def pairs(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """By family, checkpoints with random weights and their conversions, written into ``folder``."""
    found: dict[str, list[tuple[str, str]]] = {}
    for family in shipped():
        if not isinstance(family, Faulty):
            continue
        configs = dict(family.examples())
        if isinstance(family, Edited):
            configs |= {f"edited {name}": config for name, config in family.edited().items()}
        for at, config in enumerate(configs.values()):
            specimen = Specimen(family.name, family, config)
            paths = [folder / f"{family.name}-{at}{each.suffix}" for each in (specimen.checkpoint, specimen.converted)]
            for path, source in zip(paths, (specimen.checkpoint, specimen.converted), strict=True):
                path.write_bytes(source.read_bytes())
            found.setdefault(family.name, []).append((str(paths[0]), str(paths[1])))
    return found


def runs(family: str, area: str, known: Mapping[str, list[tuple[str, str]]], folder: Path) -> Iterator[Run]:
    """The runs for an edit, in order."""
    names = {"shared": ["unet2d", "waveletdiff"]}.get(family, [family])
    chosen = [pair for name in names for pair in known.get(name, [])]
    if area == "export":
        yield from _exports(family, known)
    if area in ("optimiser", "training") and GOLDEN.is_dir():
        yield _resumed(folder)
    if family == "ts2vec" and GOLDEN.is_dir():
        chosen = [(str(GOLDEN / "ts2vec-stocks.pt"), str(folder / "ts2vec.keras"))]
    for full in (False, True):
        for checkpoint, converted in chosen:
            yield Run(f"{Path(converted).stem}{' --full' * full}", checkpoint, converted, {"full": full})


def _exports(family: str, known: Mapping[str, list[tuple[str, str]]]) -> Iterator[Run]:
    orders: dict[str, list[dict[str, Any]]] = {
        "waveletdiff": [{}, {"what": "sampler", "sampler": "ddim", "steps": 100, "eta": 0.5, "batch": 2}],
        "unet2d": [{}, {"what": "sampler", "sampler": "ddpm", "steps": 10, "batch": 2}],
        "wan_vae": [{}],
        "masked_lm": [{}],
    }
    for name in {"shared": ["waveletdiff", "unet2d"]}.get(family, [family]):
        for at, (checkpoint, converted) in enumerate(known.get(name, [])):
            for order in orders.get(name, []) if at < 2 else []:
                yield Run(f"export {name}-{at} {order or ''}", checkpoint, converted, export=order)
            if family == "shared" and not at:
                yield Run(f"export {name}-{at} --to torch", checkpoint, converted, export={"to": "torch"})


def _resumed(folder: Path) -> Run:
    checkpoint = GOLDEN / "etth1-seq24-db2.ckpt"
    converted = folder / "etth1.keras"
    return Run("etth1 --resume", str(checkpoint), str(converted),
               {"resume": str(converted.with_suffix("")) + ".optimizer.safetensors"})  # fmt: skip


def prepare(folder: Path) -> list[Run]:
    """Conversions of real checkpoints that the runs need, made by the unedited code."""
    if not GOLDEN.is_dir():
        return []
    config = str(GOLDEN / "etth1-seq24-db2.config.yaml")
    etth1 = {"config": config, "with_optimizer": True}
    return [
        Run("etth1", str(GOLDEN / "etth1-seq24-db2.ckpt"), str(folder / "etth1.keras"), convert=etth1),
        Run("ts2vec", str(GOLDEN / "ts2vec-stocks.pt"), str(folder / "ts2vec.keras"), convert={}),
    ]
