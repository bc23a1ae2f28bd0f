"""Every reader of a file that may come from anywhere, and what reading one gives.

What a reader does not need is not imported: a worker starts for each of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

Found = dict[str, object]
"""What was read, by name: the bytes of arrays, and everything else that decides what is computed."""


@dataclass(frozen=True)
class Target:
    """``name`` is the file's; ``summed`` says that its format has checksums, so that no damage to it may pass."""

    name: str
    read: Callable[[Path], Found]
    summed: bool = False


def _checkpoint(path: Path) -> Found:
    from wdport.checkpoint import open_checkpoint

    with open_checkpoint(path) as opened:
        return {name: _bytes(opened.read(name)) for name in opened.tensors}


def _experiment(path: Path) -> Found:
    """An archive of a checkpoint and the configuration beside it."""
    from wdport.checkpoint import open_checkpoint

    with open_checkpoint(path) as opened:
        config = opened.training_config
        return {name: _bytes(opened.read(name)) for name in opened.tensors} | {"config": config and config.data}


def _bytes(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    return str(array.dtype), array.shape, array.tobytes()


def _accepts(function: str, *more: object) -> Callable[[Path], Found]:
    """A reader (``module:function``) of which nothing is kept: only how it ends is looked at."""
    module, _, name = function.partition(":")

    def read(path: Path) -> Found:
        getattr(import_module(module), name)(path, *more)
        return {}

    return read


def _series(path: Path) -> Found:
    """A series, of which nothing is kept: its values are finite, and each feature has a name."""
    import numpy as np

    from wdport.uses.data import read_series

    series = read_series(path)
    assert np.isfinite(series.values).all()
    assert series.values.shape[1] == len(series.names)
    return {}


def _config(path: Path) -> Found:
    from wdport.conversion.prepare import Settings, prepare

    with prepare(path.with_name("good.ckpt"), Settings(config=path, values={"num_heads": "2", "wavelet": "db2"})):
        return {}


def _converted(path: Path) -> Found:
    from wdport.conversion.load import open_converted, sound_variables

    opened = open_converted(path)
    found: Found = {name: _bytes(array) for name, array in sound_variables(opened)}
    return found | {"the configuration": json.dumps(opened.config.to_dict(), default=str)}


def _recording(path: Path) -> Found:
    from wdport.parity.recorded_reference import open_recording

    with open_recording(path) as opened:
        found: Found = {"the index": json.dumps(opened.index, sort_keys=True)}
        for case, told in opened.cases.items():
            seen = opened.observation(case)
            found[f"{case} outputs"] = [_bytes(array) for array in seen.outputs]
            found[f"{case} told"] = str(told["names"])
        return found


def _optimizer(path: Path) -> Found:
    """The state of a Lightning checkpoint's optimizer, for the variables of its model."""
    from wdport.conversion.optimizer import converted_optimizer
    from wdport.conversion.prepare import Settings, prepare

    with prepare(path, Settings(values={"num_heads": "2", "wavelet": "db2", "seq_len": "24"})) as prepared:
        return _optimised(converted_optimizer(prepared))


def _optimizer_file(path: Path) -> Found:
    from wdport.conversion.optimizer_file import read_optimizer

    return _optimised(read_optimizer(path)[0])


def _optimised(state: Any) -> Found:
    found: Found = {f"{moment} of {name}": _bytes(array)
                    for moment, several in state.moments.items() for name, array in several.items()}  # fmt: skip
    return found | {"settings": str([state.kind, state.groups, dict(state.steps), dict(state.schedules)])}


def _saved_state(path: Path) -> Found:
    from wdport.uses.training.run_state import read_state

    read = read_state(path.parent)
    assert read is not None
    found: Found = {f"{role} {at}": _bytes(array) for role, several in read[0].items()
                    for at, array in enumerate(several)}  # fmt: skip
    return found | {"facts": json.dumps(read[1], sort_keys=True)}


def _samples(path: Path) -> Found:
    from wdport.uses.data.samples_reader import read_samples

    return {"series": _bytes(read_samples(path).values)}


RUN = {"seed": 0, "batch": 2}
"""Facts of a run of `sample`; the second one a resumed run takes from the folder."""


def _part(path: Path) -> Found:
    """A block of samples that an interrupted run left."""
    output = path.with_name("a.npz")
    (block,) = run_of_samples(output).glob("*.npz")
    block.write_bytes(path.read_bytes())
    return _resumed(output)


def _run(path: Path) -> Found:
    """The facts of an interrupted run."""
    output = path.with_name("b.npz")
    (run_of_samples(output) / "run.json").write_bytes(path.read_bytes())
    return _resumed(output)


def run_of_samples(output: Path) -> Path:
    """The folder that an interrupted run of `sample` leaves, made if it is not there."""
    import numpy as np

    from wdport.uses.sampling.parts import Parts

    folder = output.with_name(f"{output.name}.parts")
    if not folder.is_dir():
        with Parts(output, RUN) as parts:
            parts.save(0, {"series": np.ones((2, 6, 2), np.float32)})
    return folder


def _resumed(output: Path) -> Found:
    from wdport.uses.sampling.parts import Parts

    with Parts(output, {**RUN, "batch": 9}, ("batch",)) as parts:
        found: Found = {f"{name} {at}": _bytes(array) for at, block in enumerate(parts.blocks())
                        for name, array in block.items()}  # fmt: skip
        return found | {"facts": json.dumps(dict(parts.facts), sort_keys=True)}


def _latents(path: Path) -> Found:
    from wdport.uses.cli.codec import read_coded

    return {"latents": _bytes(read_coded(path, ("latents", "mean")))}


def _exported(path: Path) -> Found:
    from wdport.uses.exporting.artifact import member_digests, read_facts

    return {"facts": json.dumps(read_facts(path), sort_keys=True), "members": str(sorted(member_digests(path).items()))}


def _loaded(path: Path) -> Found:
    """By the loader that users copy, which has errors of its own."""
    from wdport.base.errors import InputError
    from wdport.uses.exporting.loader import ArtifactError, load

    try:
        return {"facts": json.dumps(load(path).facts, sort_keys=True)}
    except ArtifactError as error:
        raise InputError(path, str(error), "export it again") from error


def _prompts(path: Path) -> Found:
    from wdport.uses.cli.prompts import read_prompts

    read_prompts((), None, str(path))
    return {}


def _names(path: Path) -> Found:
    from wdport.conversion.convert import OptimizerRequest

    return {"names": OptimizerRequest(True, names=path)._names()}


def _streamed(path: Path) -> Found:
    from wdport.checkpoint.error_context import located
    from wdport.checkpoint.faults import Fault
    from wdport.uses.data.arrays import understood
    from wdport.uses.data.numpy_files import map_array

    with located(path), path.open("rb") as file, understood(".npy"):
        if map_array(file, path.stat().st_size).dtype.kind not in "iuf":
            raise Fault("is not real", "save it again")
    return {}


SUMMED = {
    "experiment tar.gz": Target("x.tar.gz", _experiment, summed=True),
    "zip": Target("x.pt", _checkpoint, summed=True),
    "torchscript": Target("x.ts.pt", _checkpoint, summed=True),
    "keras": Target("x.keras", _converted, summed=True),
    "weights.h5": Target("x.weights.h5", _converted, summed=True),
    "converted safetensors": Target("x.safetensors", _converted, summed=True),
    "recording": Target("x.run.npz", _recording, summed=True),
    "optimizer": Target("x.ckpt", _optimizer, summed=True),
    "optimizer file": Target("x.optimizer.safetensors", _optimizer_file, summed=True),
    "training state": Target("state.npz", _saved_state, summed=True),
    "converted npz": Target("y.npz", _converted, summed=True),
    "samples": Target("samples.npz", _samples, summed=True),
    "sample part": Target("part.npz", _part, summed=True),
    "sample run": Target("part.json", _run, summed=True),
    "latents": Target("latents.npz", _latents, summed=True),
    "exported": Target("x.stablehlo", _exported, summed=True),
    "exported, loader": Target("y.stablehlo", _loaded, summed=True),
}
"""Formats with checksums: no damage may pass."""

PLAIN = {
    "experiment tar": Target("x.tar", _experiment),
    "legacy": Target("x.pth", _checkpoint),
    "safetensors": Target("y.safetensors", _checkpoint),
}
"""Weights without checksums: what passes is counted."""

TEXTS = {
    "index": Target("model.safetensors.index.json", _checkpoint),
    "mapping": Target("x.yaml", _accepts("wdport.mapping.table:load_table")),
    "configuration": Target("c.yaml", _config),
    "csv": Target("x.csv", _series),
    "arff": Target("x.arff", _series),
    "npy": Target("x.npy", _series),
    "streamed npy": Target("y.npy", _streamed),
    "npz": Target("x.npz", _series),
    "mat": Target("x.mat", _series),
    "statistics": Target("s.json", _accepts("wdport.uses.data:read_statistics")),
    "statistics npz": Target("s.npz", _accepts("wdport.uses.data:read_statistics")),
    "known": Target("k.csv", _accepts("wdport.uses.sampling:read_known")),
    "init": Target("i.npy", _accepts("wdport.uses.sampling:read_init")),
    "prompts": Target("p.json", _prompts),
    "parameter names": Target("n.json", _names),
    "policy": Target("parity.toml", _accepts("wdport.parity.policy:read_policy", date(2026, 1, 1))),
    "baseline": Target("b.json", _accepts("wdport.parity.policy:read_baseline")),
}

TARGETS = SUMMED | PLAIN | TEXTS
MUTANTS = (*SUMMED, *PLAIN)
"""Those of the table of mutants."""
