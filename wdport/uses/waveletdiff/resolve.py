"""Find a checkpoint's configuration from shapes, given values, the file's metadata and stated assumptions.

Shapes determine most of it; the head count, the prediction target and the wavelet cannot be derived from an official
checkpoint. A given value that contradicts the file is an error, never an override. Hyper-parameters that contradict the
rest of the file belong to another model, and none of them is used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from wdport.base.errors import MisfitError
from wdport.base.limits import MAX_GROUPS, MAX_STEPS
from wdport.checkpoint.tensor import HALF_ROUNDING
from wdport.families.shapes import NUMBER, consecutive, contradicted, most_frequent, require_determined, size
from wdport.mapping.axes import Shape
from wdport.models.interface import ConfigurationSource, Document, Resolved
from wdport.uses.data.transforms import OHLC_ATR
from wdport.uses.diffusion.schedules import identify_schedule
from wdport.uses.waveletdiff.config import ASSUMED, Config
from wdport.uses.waveletdiff.settings import NAME, Saved, read_saved
from wdport.uses.waveletdiff.variables import require_sizes
from wdport.uses.wavelets.lengths import auto_wavelet, candidates, group_lengths, series_lengths

SCHEDULE_TOLERANCE = {"exponential": 1e-6, "linear": 1e-6, "cosine": 1e-4}
"""Largest deviation of a file's float32 beta from the formula; measured on real files: 2.0e-9 for the
exponential, 3.1e-5 for the cosine schedule (a difference of nearly equal float32 numbers)."""

Values = Mapping[str, tuple[object, str]]
"""Fields, each with its value and its origin."""

_LEVEL = re.compile(rf"level_transformers\.{NUMBER}\.")
_BLOCK = re.compile(rf"level_transformers\.{NUMBER}\.blocks\.{NUMBER}\.")


def resolve(source: ConfigurationSource, config: Document, flags: Document) -> Resolved:
    """Determine the configuration; raises :class:`MisfitError` naming every contradiction."""
    tensor_fields = _determined(source)
    config = {name: value for name, value in config.items() if value is not None}
    supplied = {**{name: (value, "config") for name, value in config.items()},
             **{name: (value, "flag") for name, value in flags.items()}}  # fmt: skip
    saved = read_saved(source.saved)
    _refuse_contradictions(source, saved, config, {*tensor_fields, *flags})
    notes = list(saved.notes)
    resolved = None
    if saved.fields:
        saved_fields = {name: (value, NAME) for name, value in saved.fields.items()}
        try:
            resolved = _settle(source, tensor_fields, {**saved_fields, **supplied})
        except MisfitError as error:
            notes.append(f"{NAME} are not used: {error.what}")
    resolved = resolved or _settle(source, tensor_fields, supplied)
    notes += [f"{name} is not read; {meant} is assumed" for name, meant in saved.unknown.items()
              if meant in resolved.assumed]  # fmt: skip
    return replace(resolved, notes=(*notes, *_condition(resolved)))


def _condition(resolved: Resolved) -> list[str]:
    """A note on the condition that the network takes."""
    config = resolved.config
    if not config.scale_embedding:
        return []
    if config.conditioning == "none" and resolved.origins["conditioning"] != "weights":
        return ["takes a condition: scale; stated to be trained without, though its scale embedding was trained"]
    trained = {
        "scale": "it was trained with one for every window",
        "none": "it was trained without, so samples are drawn without",
        None: "whether it was trained with one is not known (--set conditioning=scale or none)",
    }
    return [f"takes a condition: scale; {trained[config.conditioning]}"]


def _determined(source: ConfigurationSource) -> Values:
    """The fields that the tensors determine."""
    tensor_fields = {name: (value, "shapes") for name, value in _from_shapes(source).items()}
    if _untrained(source):
        tensor_fields["conditioning"] = ("none", "weights")
    if "beta_all" in source.shapes:
        # Files in 16 bits have rounded tables, which still identify their schedule.
        relative = HALF_ROUNDING.get(source.dtypes["beta_all"], 0.0)
        schedule = identify_schedule(source.read("beta_all"), SCHEDULE_TOLERANCE, relative)
        if schedule is not None:
            tensor_fields["noise_schedule"] = (schedule, "buffers")
    return tensor_fields


def _refuse_contradictions(
    source: ConfigurationSource, saved: Saved, config: Document, settled: Collection[str]
) -> None:
    """Refuse contradictions between the file's metadata and a configuration file, except for fields that tensors or a
    flag determine."""
    faults = [
        f"{name} is {config[name]} in the config but {value} in its {NAME}"
        for name, value in saved.fields.items()
        if name in config and name not in settled and config[name] != value
    ]
    if faults:
        fix = "correct the configuration, or settle it with `--set NAME=VALUE`"
        raise MisfitError(source.path, "; ".join(faults), fix, faults)


def _settle(source: ConfigurationSource, tensor_fields: Values, supplied: Values) -> Resolved:
    """The configuration from the tensors, given values, and assumptions for the rest."""
    stated = [(name, *pair) for name, pair in supplied.items() if (name, pair[0]) != ("noise_schedule", "custom")]
    faults = contradicted(stated, {name: value for name, (value, _) in tensor_fields.items()})
    values = {
        **tensor_fields,
        **{name: pair for name, pair in supplied.items() if name not in tensor_fields or name == "noise_schedule"},
    }
    if "noise_schedule" not in values and "beta_all" in source.shapes:
        faults.append("its noise schedule is not one of the known ones (`--set noise_schedule=custom` keeps it)")
    if faults:
        raise MisfitError(source.path, "; ".join(faults), "correct the configuration or leave the value out", faults)
    for name, value in ASSUMED.items():
        values.setdefault(name, (value, "assumed"))
    _wavelet(values, source)
    _units(values, source)
    plain = {name: value for name, (value, _) in values.items() if name != "levels"}
    try:
        config = require_sizes(Config.from_dict(plain))
    except ValueError as error:
        raise MisfitError(source.path, str(error), _fix_of(values, str(error))) from None
    origins = {name: origin for name, (_, origin) in values.items() if name != "levels"}
    return Resolved(config, origins, _alternatives(config, origins))


def _units(values: dict[str, tuple[Any, str]], source: ConfigurationSource) -> None:
    """Compute the statistics of windows of the model's length, and refuse z-scores that nobody stated for a network
    that was trained with a scale."""
    statistics, length = values.get("window_statistics"), values["seq_len"][0]
    if statistics is not None and callable(statistics[0]):
        if length is None:
            raise MisfitError(source.path, "the length of a window is not known", "give it with `--set seq_len=N`")
        values["window_statistics"] = (statistics[0](length), statistics[1])
        if values["transform"][0] == OHLC_ATR and values["scale_embedding"][0]:
            values.setdefault("conditioning", ("scale", statistics[1]))
    stated = values.get("transform", (None, ""))[0]
    # Without one if its scale embedding is untrained, or that is stated.
    trained = bool(values["scale_embedding"][0]) and values.get("conditioning", (None, ""))[0] != "none"
    if stated is None and values.get("norm_mean", (None, ""))[1] == "flag" and trained:
        what = "its scale embedding was trained, as with windows of prices, and these are z-scores of the columns"
        raise MisfitError(source.path, what, f"add `--transform {OHLC_ATR}`, or `--transform zscore` if that is meant")


def _fix_of(values: Values, what: str) -> str:
    """What to do about a value that the configuration refuses."""
    if what.startswith("norm_") and values.get("norm_mean", (None, ""))[1] == "flag":
        return "give the data that the model was trained on, or its statistics (`--data FILE`, `--norm-stats FILE`)"
    return "give the right value with `--config FILE` or `--set NAME=VALUE`"


def _alternatives(config: Config, origins: Mapping[str, str]) -> dict[str, str]:
    """Other wavelets and lengths with these groups, if the wavelet was assumed; the file cannot distinguish them."""
    if origins["wavelet"] != "assumed":
        return {}
    choices = candidates(config.level_lengths, config.mode)
    classes = [f"{', '.join(c.wavelets)} at length {' or '.join(map(str, c.lengths))}" for c in choices]
    return {"wavelet": "; ".join(classes)} if classes else {"wavelet": "no wavelet of PyWavelets gives these groups"}


def _from_shapes(source: ConfigurationSource) -> dict[str, Any]:
    """Everything that names and shapes determine.

    Each size is read from several tensors, so that a single wrong or missing one does not change the configuration.
    """
    shapes = source.shapes
    groups = consecutive(int(m[1]) for name in shapes if (m := _LEVEL.match(name)))
    if groups > MAX_GROUPS:
        what = f"{groups} level transformers (at most {MAX_GROUPS} are supported)"
        raise MisfitError(source.path, what, "use a checkpoint of this model")
    blocks: dict[int, list[int]] = {}
    for name in shapes:
        if match := _BLOCK.match(name):
            blocks.setdefault(int(match[1]), []).append(int(match[2]))
    depth = [consecutive(blocks.get(i, ())) for i in range(1, groups)]
    lengths = [shapes.get(f"level_transformers.{i}.pos_encoding.pe", ())[:1] for i in range(groups)]
    if not depth or not all(lengths):
        absent = [f"level_transformers.{i}.pos_encoding.pe" for i, d in enumerate(lengths) if not d]
        what = f"missing {', '.join(absent)}" if depth and groups else "the level transformers are missing"
        raise MisfitError(source.path, f"{what}, so the model's size is unknown", "use a complete checkpoint")
    values: dict[str, Any] = {
        "levels": groups - 1,
        "level_lengths": tuple(length[0] for length in lengths),
        "features": most_frequent(_sizes(shapes, "output_proj.bias", 0, range(groups))),
        "embed_dim": most_frequent(_sizes(shapes, "pos_encoding.pe", 1, range(1, groups))),
        "num_layers": most_frequent(depth),
        "time_embed_dim": most_frequent([
            size(shapes, "time_embedding.mlp.2.bias", 0),
            size(shapes, "time_embedding.mlp.0.weight", 1),
            2 * half if (half := size(shapes, "time_embedding.emb", 0)) else None,
        ]),
        "qk_norm": any(name.endswith(".attn.q_norm.scale") for name in shapes),
        "cross_level_attention": any(name.startswith("cross_level_attention.") for name in shapes),
        "scale_embedding": any(name.startswith("scale_embedding.") for name in shapes),
    }  # fmt: skip
    require_determined(values, source.path)
    if values["qk_norm"]:
        widths = [s for name in shapes if name.startswith("level_transformers.1.") and name.endswith(".q_norm.scale")
                  for s in shapes[name]]  # fmt: skip
        head = most_frequent(widths)
        if head:
            # Norms of queries and keys have the width of a head; packed attention has no trace of the number of heads.
            values["num_heads"] = values["embed_dim"] // head
    return values


def _sizes(shapes: Mapping[str, Shape], name: str, axis: int, levels: Iterable[int]) -> list[int | None]:
    return [size(shapes, f"level_transformers.{i}.{name}", axis) for i in levels]


def _untrained(source: ConfigurationSource) -> bool:
    """Whether the scale embedding has its initial weights, whose biases are 0: training without a scale leaves them."""
    biases = [f"scale_embedding.mlp.{index}.bias" for index in (0, 2)]
    return all(name in source.shapes and not source.read(name).any() for name in biases)


def _wavelet(values: dict[str, tuple[Any, str]], source: ConfigurationSource) -> None:
    """Determine wavelet, length and boundary mode, and check them against the group lengths."""
    lengths = values["level_lengths"][0]
    level = len(lengths) - 1
    mode = values["boundary_mode"][0]
    wavelet, seq_len = values.get("wavelet"), values.get("seq_len")
    try:
        if seq_len is not None:
            if abs(seq_len[0]) > MAX_STEPS:
                raise ValueError(f"seq_len is more than {MAX_STEPS}")
            wavelet = wavelet or (auto_wavelet(seq_len[0]), "assumed")
            expected = group_lengths(seq_len[0], wavelet[0], level, mode)
            if expected != lengths:
                what = f"seq_len {seq_len[0]} with {wavelet[0]} and {level} levels gives groups {list(expected)}"
                fix = "correct seq_len or wavelet"
                raise MisfitError(source.path, f"{what}, the file has {list(lengths)}", fix)
        else:
            wavelet, seq_len = _search(wavelet, lengths, mode)
    except ValueError as error:
        raise MisfitError(source.path, str(error), "correct wavelet, boundary_mode or seq_len") from None
    values["wavelet"], values["seq_len"] = wavelet, seq_len


def _search(
    wavelet: tuple[str, str] | None, lengths: tuple[int, ...], mode: str
) -> tuple[tuple[str | None, str], tuple[int | None, str]]:
    """The longest series whose groups have these lengths, under the given or the automatic wavelet."""
    names = [wavelet[0]] if wavelet else ["db2", "db4", "db6", "db8"]
    fitting = [(seq_len, name) for name in names for seq_len in series_lengths(lengths, name, mode)
               if wavelet or name in ("db2", auto_wavelet(seq_len))]  # fmt: skip
    if fitting:
        # Several lengths give the same groups, since every level halves the length and rounds it.
        seq_len, name = max(fitting, key=lambda pair: pair[0])  # of several names the first
        return wavelet or (name, "assumed"), (seq_len, "assumed")
    if wavelet:
        raise ValueError(f"no series gives groups {list(lengths)} with wavelet {wavelet[0]}, boundary mode {mode}")
    return (None, "assumed"), (None, "assumed")
