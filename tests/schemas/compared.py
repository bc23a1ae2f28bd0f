"""The formats that people write: documents to begin with, their readers, and where a schema and a reader may differ."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from wdport.families.registry import find_family
from wdport.mapping.table import parse_table
from wdport.parity.policy.baseline import read_baseline
from wdport.parity.policy.policy import read_policy
from wdport.uses.custom_sampled import read_sampling
from wdport.uses.data.statistics import read_statistics

ROOT = Path(__file__).parents[2]
TODAY = date(2026, 1, 1)


@dataclass(frozen=True)
class Compared:
    """A format as its reader sees it.

    Attributes:
        seeds: sound documents; the schema's own examples are added.
        read: refuses a document by an error.
        semantic: what the schema cannot state: parts of the reader's messages, each with a document that shows it.
        lenient: what the reader lets pass: parts of the schema's messages, each with a document that shows it.
    """

    seeds: Sequence[Any]
    read: Callable[[Any, Path], object]
    semantic: Mapping[str, Any] = field(default_factory=dict)
    lenient: Mapping[str, Any] = field(default_factory=dict)


def tables() -> list[Any]:
    """The examples of the guides; those without a format are parts of a table."""
    pages = ("mapping.md", "own-model.md", "own-sampling.md")
    text = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in pages)
    found = [yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    found = [{"format": 2, **each} for each in found]
    rows = [each for each in found if set(each) & {"layers", "tensors", "tied", "sections"}]
    return rows + [{**rows[0], **each} for each in found if each not in rows]


def policies() -> list[Any]:
    texts = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(encoding="utf-8"), re.DOTALL)
    found = [dates_as_text(tomllib.loads(text)) for text in (*texts, (ROOT / "parity.toml").read_text())]
    return [each for each in found if "tool" not in each]  # the settings of pytest


def read_table(document: Any, folder: Path) -> None:
    if isinstance(document, dict) and type(document.get("format")) is int and document["format"] == 1:
        raise ValueError("the schema is of format 2")
    text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False)
    table = parse_table(text.encode(), "table", ROOT / "mappings")
    if "sampling" in document:
        read_sampling(table.sampling, "table")


def read_toml(document: Any, folder: Path) -> None:
    if not isinstance(document, dict):
        raise TypeError("a TOML file is a table")
    (folder / "parity.toml").write_text(
        "\n".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in document.items())
    )
    read_policy(folder / "parity.toml", TODAY)


def _toml(value: Any, key: str = "") -> str:
    """A value of TOML, where dates have no quotes."""
    if value is None:
        raise TypeError("TOML has no null")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each, key)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if key == "expires" and isinstance(value, str) and re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
        return value
    return json.dumps(value)


def dates_as_text(value: Any) -> Any:
    """A document of TOML as a validator is given it."""
    if isinstance(value, dict):
        return {key: dates_as_text(each) for key, each in value.items()}
    if isinstance(value, list):
        return [dates_as_text(each) for each in value]
    return value.isoformat() if isinstance(value, date) else value


def read_json(reader: Callable[[Path], object]) -> Callable[[Any, Path], None]:
    def read(document: Any, folder: Path) -> None:
        (folder / "document.json").write_text(json.dumps(document))
        reader(folder / "document.json")

    return read


def read_settings(name: str, whole: Mapping[str, Any]) -> Callable[[Any, Path], None]:
    """The family's reader, and then each value in a configuration that is otherwise sound."""
    family = find_family(name, name)

    def read(document: Any, folder: Path) -> None:
        if not isinstance(document, dict):
            raise TypeError("a configuration is a mapping")
        for key, value in family.read_settings(document, "configuration").items():
            if key not in ("levels", "boundary_mode"):
                beside = {"embed_dim": value} if key == "num_heads" else {}
                family.load_config({**whole, **beside, key: value})

    return read


LAYERS = [{"torch": "a", "keras": "a"}]
FLOW = {"process": "flow", "shape": [2]}
TAP = {"isolated": 1e-15, "cumulative": 1e-15, "rms_ratio": 1.0}
WAIVER = {"tap": "a", "gate": "B", "reason": "x", "expires": "2027-01-31"}


def layer(**fields: Any) -> dict[str, Any]:
    return {"format": 2, "layers": [{"torch": "a", "keras": "a", "kind": "linear", **fields}]}


def tensor(**fields: Any) -> dict[str, Any]:
    return {"format": 2, "tensors": [{"torch": "a", "keras": "a", "rule": "identity", **fields}]}


def section(prefix: str, name: str) -> dict[str, Any]:
    return {"format": 2, "sections": [{"torch": prefix, "layers": [{"torch": name, "keras": "a"}]}]}


def sampling(**fields: Any) -> dict[str, Any]:
    return {"format": 2, "layers": LAYERS, "sampling": FLOW | fields}


COMPARED: Mapping[str, Compared] = {
    "mapping-table": Compared(
        tables(),
        read_table,
        {
            # Names on both sides of a row have the same indices.
            "different indices": layer(torch="a<i>"),
            # Sizes are of axes that the rule or the layer has.
            "which is not an axis": layer(sizes={"h": 2}),
            # A rule takes so many tensors and makes so many variables.
            "does not take": tensor(torch=["a", "b"]),
            "does not make": tensor(keras=["a", "b"]),
            # YAML's reader: numbers have at most 100 characters.
            "characters; write it": {"format": 2, "sampling": FLOW | {"shape": 10**400}, "layers": LAYERS},
            # A section's prefix and a name, which are sound by themselves, make one that is not.
            "has a duplicate index": section("a<i>", "b<i>"),
            # A suffix and what the kind puts behind it.
            "leading or trailing blanks": layer(kind="rms_norm", names={"weight": "scale "}),
            # What a rule says: the same axes on both sides, in the words of rules.
            "on each side": tensor(rule="out in -> in"),
            "must be on both sides": tensor(rule="... -> a"),
            "is not an axis": tensor(rule="out 2 -> 2 out"),
            "unexpected ')'": tensor(rule="out ) -> out"),
            "is not closed": tensor(rule="(out -> out"),
            "holds one axis name": tensor(rule="[] a -> a"),
            "the same labels": tensor(rule="(a=x,y b) -> (a=x,z b)"),
            "has a duplicate label": tensor(rule="(a=x,x b) -> (a=x,x b)"),
            # Others.
            "is tied to itself": {"format": 2, "tied": [{"torch": "a", "same_as": "a"}]},
            "include:": {"format": 2, "include": ["no-such-table"]},
            "no_class is not one": sampling(classes=2, no_class=2),
            "more than 16777216 values": sampling(shape=[1 << 25]),
            "trained_betas are not": sampling(process="diffusion", num_train_timesteps=2, trained_betas=[0.5]),
            "steps_offset": sampling(process="diffusion", num_train_timesteps=2, steps_offset=2),
        },
        {},
    ),
    "policy": Compared(
        policies(),
        read_toml,
        {
            # No layer is waived twice for one gate.
            "again; keep one": {"waivers": [WAIVER, {**WAIVER, "reason": "another"}]},
            # Numbers are below 1.8e308.
            "finite number": {"bounds": {"logic": {"value": 10**400, "reason": "x", "expires": "2027-01-31"}}},
        },
        # Read in any case.
        {"is not one of ['fail', 'warn']": {"settings": {"differs": "FAIL"}}},
    ),
    "baseline": Compared(
        [],
        read_json(read_baseline),
        {
            # Numbers are below 1.8e308.
            "not a number of at least": {"schema": 1, "taps": {"a": {**TAP, "isolated": 10**400}}},
            # Whole numbers are written without a point.
            "schema: is not 1": {"schema": 1.0, "taps": {"a": TAP}},
        },
    ),
    "statistics": Compared(
        [],
        read_json(read_statistics),
        {
            # There are as many means as standard deviations.
            "means but": {"mean": [1, 2], "std": [1]},
            # Numbers are below 1.8e308.
            "list of numbers": {"mean": [10**400], "std": [1]},
            # There are as many names as means.
            "names for": {"mean": [1, 2], "std": [1, 1], "names": ["a"]},
        },
        # A list may lie within a list of length 1.
        {"is not of type 'number'": {"mean": [[1, 2]], "std": [1, 2]}},
    ),
    "configuration-waveletdiff": Compared(
        [
            {
                "model": {"embed_dim": 32, "num_heads": 4, "num_layers": 2, "time_embed_dim": 64, "dropout": 0.1,
                          "prediction_target": "noise"},
                "attention": {"use_cross_level_attention": True},
                "noise": {"schedule": "cosine"},
                "dataset": {"name": "etth1", "seq_len": 24},
                "wavelet": {"type": "db2", "levels": 3},
                "training": {"lr": 1e-3},
            },
            {"wavelet": {"type": "auto", "levels": "auto"}},
        ],
        read_settings("waveletdiff", {"level_lengths": [4, 4], "features": 1, "embed_dim": 8, "num_heads": 1,
                                      "num_layers": 1, "time_embed_dim": 8}),
        # A wavelet is one that PyWavelets has.
        {"wavelet.type": {"dataset": {"seq_len": 24}, "wavelet": {"type": "db999", "levels": "auto"}}},
    ),
    "configuration-ts2vec": Compared(
        [{"input_dims": 7, "hidden_dims": 64, "repr_dims": 320, "depth": 10, "kernel_size": 3, "lr": 1e-3}],
        read_settings("ts2vec", {"input_dims": 1, "hidden_dims": 1, "output_dims": 1, "depth": 1, "kernel_size": 3}),
        # Two names of one value agree.
        {"keep the right one": {"output_dims": 64, "repr_dims": 320}},
    ),
    "configuration-unet2d": Compared(
        [
            {
                "_class_name": "UNet2DModel", "_diffusers_version": "0.42.1", "sample_size": [8, 8], "in_channels": 1,
                "out_channels": 1, "down_block_types": ["DownBlock2D"], "up_block_types": ["UNetResUpBlock2D"],
                "block_out_channels": [32], "layers_per_block": 1, "mid_block_type": None, "act_fn": "silu",
                "norm_eps": 1e-5, "dropout": 0.0, "class_embed_type": None,
            },
        ],
        read_settings("unet2d", {"block_out_channels": [32], "down_block_types": ["DownBlock2D"],
                                 "up_block_types": ["UpBlock2D"], "num_train_timesteps": 1000}),
        {
            # There are as many blocks as levels.
            "blocks, block_out_channels": {"block_out_channels": [32, 32]},
            # Groups and heads divide the channels, and a head is no wider than they are.
            "does not divide": {"block_out_channels": [33]},
            "is more than": {"attention_head_dim": 64, "norm_num_groups": 1},
            "freq_shift is half": {"freq_shift": 16},
        },
    ),
    "configuration-masked_lm": Compared(
        [
            {
                "model_type": "eurobert", "architectures": ["EuroBertForMaskedLM"], "vocab_size": 128256,
                "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
                "num_key_value_heads": 4, "head_dim": 64, "hidden_act": "swish", "rms_norm_eps": 1e-5,
                "rope_parameters": {"rope_theta": 250000, "rope_type": "default"}, "tie_word_embeddings": False,
                "attention_bias": False, "attention_dropout": 0.0, "pad_token_id": None,
                "transformers_version": "5.23.0",
            },
            {"rope_theta": 250000.0, "rope_scaling": {"type": "default"}, "partial_rotary_factor": 1},
        ],
        read_settings("masked_lm", {"vocab_size": 200_000, "hidden_size": 768, "num_attention_heads": 12,
                                    "num_hidden_layers": 1, "pad_token_id": None}),
        {
            # Heads divide the channels, key heads the heads, and rotary positions turn pairs.
            "does not divide": {"num_attention_heads": 7},
            "is odd": {"head_dim": 63},
            # The padding is a token.
            "is not below vocab_size": {"pad_token_id": 1 << 24},
            "the sizes are those of a model": {"vocab_size": 1 << 24},
        },
    ),
    "configuration-wan_vae": Compared(
        [
            {
                "_class_name": "AutoencoderKLWan", "_diffusers_version": "0.42.1", "base_dim": 96, "z_dim": 2,
                "dim_mult": [1, 2], "temperal_downsample": [True], "attn_scales": [], "dropout": 0.0,
                "latents_mean": [0.1, -0.2], "latents_std": [1.5, 2.0], "is_residual": False, "patch_size": None,
            },
        ],
        read_settings("wan_vae", {"dim_mult": [1, 2], "temperal_downsample": [True]}),
        {
            # There are as many steps as pairs of levels.
            "steps between levels": {"dim_mult": [1, 2, 2]},
            # Patches fill whole channels.
            "pixels of a patch": {"patch_size": 2},
            # Shortcuts average and repeat whole groups of channels.
            "cannot average": {"is_residual": True},
        },
    ),
}  # fmt: skip
