"""Bad texts that people write: mapping tables, training configurations, policies, baselines."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.bad.case import Bad
from tests.families.test_custom import HEAD, TABLES
from tests.mapping import test_format2, test_strict_yaml, test_table
from tests.parity import test_policy_baseline, test_policy_read
from tests.uses.waveletdiff import test_settings

OWN = HEAD.format(torch="lstm", keras="lstm") + TABLES["lstm"]
MAPPED = (
    "convert good.ckpt --mapping bad.yaml -o out.keras", "verify good.ckpt good.keras --mapping bad.yaml",
    "record good.ckpt --mapping bad.yaml",
)  # fmt: skip
CONFIGURED = ("convert good.ckpt --config bad.yaml -o out.keras",)
JUDGED = ("verify good.ckpt good.keras --policy bad.toml",)
COMPARED = ("verify good.ckpt good.keras --baseline bad.json",)


def _lines(fragment: str, line: str) -> str:
    """A fault in a line of the file; of several ways to say it, a part that all have."""
    said = "*" if "|" in fragment else f"*{fragment}*" if fragment else "*"
    return f"bad.yaml: {line}: {said}"


def _tables() -> dict[str, Bad]:
    rows: dict[str, Bad] = {}

    def add(name: str, text: str | bytes, line: str, code: int = 4) -> None:
        content = text if isinstance(text, bytes) else text.encode()
        rows[f"table: {name}"] = Bad(MAPPED, code, line, {"bad.yaml": content})

    for name, (data, line, fragment) in test_strict_yaml.BAD.items():
        add(name, data, "bad.yaml: is a binary file*" if name == "utf-16" else _lines(fragment, line), 3)
    head = test_table.HEAD + test_table.SECTION
    for row, fragment in test_table.BAD_ROWS.items():
        code = 3 if "duplicate key" in fragment else 4
        add(f"row {row}", f"{head}      - {row}\n", _lines(fragment, "line 8"), code)
    for row, fragment in test_table.BAD_TAPS.items():
        add(f"tap {row}", f"{head}    taps:\n      - {row}\n", _lines(fragment, "line 9"))
    for name, (text, number, fragment) in test_table.BAD_WHOLES.items():
        add(f"whole, {name}", text, _lines(fragment, f"line {number}"))
    for row, fragment in test_format2.BAD_LAYERS.items():
        add(f"layer {row}", f"format: 2\nlayers:\n  - {{{row}}}\n", _lines(fragment, "line 3"))
    for row, fragment in test_format2.BAD_TENSORS.items():
        add(f"tensor {row}", f"format: 2\ntensors:\n  - {{{row}}}\n", _lines(fragment, "line 3"))
    for name, data in {"empty": b"", "blank": b"\n\n", "a comment alone": b"# nothing\n"}.items():
        add(name, data, "bad.yaml: *empty*", 3)
    add("a megabyte and more", b"#" * (1 << 20) + b"\n", "bad.yaml: *bytes*", 3)
    nothing = OWN + "  - {torch: nowhere, keras: a, kind: linear}\n"
    rows["table: a rule that matches nothing"] = Bad(
        MAPPED[:1], 4, "bad.yaml: is for another model: *", {"bad.yaml": nothing.encode()}, builds=True
    )
    return rows


def _configurations() -> dict[str, Bad]:
    rows: dict[str, Bad] = {}
    for name in ("latin-1", "duplicate key", "anchor", "python tag", "key no", "20,000 lists"):
        data, line, fragment = test_strict_yaml.BAD[name]
        rows[f"config: {name}"] = Bad(CONFIGURED, 3, _lines(fragment, line), {"bad.yaml": data})
    for changes, place, fragment in [*test_settings.BAD, *test_settings.UNKNOWN]:
        text = yaml.safe_dump({**test_settings.document(), **_merged(changes)})
        line = f"bad.yaml: {place}: *{fragment}*"
        rows[f"config: {changes}"] = Bad(CONFIGURED, 4, line, {"bad.yaml": text.encode()})
    for name, (change, line) in CONFLICTS.items():
        text = yaml.safe_dump(_merged(change))
        rows[f"config: {name}"] = Bad(CONFIGURED, 4, line, {"bad.yaml": text.encode()})
    return rows


def _merged(changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in test_settings.document(**changes).items() if name in changes}


CONFLICTS: dict[str, tuple[dict[str, Any], str]] = {
    "another width": ({"model": {"embed_dim": 32}}, "good.ckpt: *embed_dim*"),
    "another depth": ({"model": {"num_layers": 7}}, "good.ckpt: *num_layers*"),
    "heads that do not divide": ({"model": {"embed_dim": 16, "num_heads": 3, "num_layers": 1, "time_embed_dim": 8}},
                                 "good.ckpt: *num_heads*"),
    "another schedule": ({"noise": {"schedule": "cosine"}}, "good.ckpt: *"),
    "an unknown schedule": ({"noise": {"schedule": "sunny"}}, "good.ckpt: *"),
    "another wavelet": ({"dataset": {"seq_len": 24}, "wavelet": {"type": "db8", "levels": 3}}, "good.ckpt: *"),
    "10^9 layers": ({"model": {"num_layers": 10**9}}, "*num_layers*"),
    "10^9 time steps": ({"dataset": {"seq_len": 10**9}}, "*seq_len*"),
    "a million levels": ({"dataset": {"seq_len": 24}, "wavelet": {"type": "db2", "levels": 10**6}}, "*levels*"),
}  # fmt: skip


def _policies() -> dict[str, Bad]:
    rows = {}
    for name, (text, fragment) in test_policy_read.REFUSALS.items():
        rows[f"policy: {name}"] = Bad(JUDGED, 3, f"bad.toml: *{fragment}*", {"bad.toml": text.encode()})
    rows["policy: latin-1"] = Bad(JUDGED, 3, "bad.toml: *UTF-8*", {"bad.toml": b'a = "\xff"'})
    for name, text in test_policy_baseline.BAD.items():
        rows[f"baseline: {name}"] = Bad(COMPARED, 3, "bad.json: *", {"bad.json": text.encode()})
    rows["baseline: not text"] = Bad(COMPARED, 3, "bad.json: *", {"bad.json": b"\xff\xfe\0"})
    rows["baseline: too long"] = Bad(COMPARED, 3, "bad.json: *", {"bad.json": b" " * (5 << 20) + b"{}"})
    twice = json.dumps({"schema": 1, "taps": {"a": test_policy_baseline.GOOD}})[:-1] + ', "schema": 1}'
    rows["baseline: a key twice"] = Bad(COMPARED, 3, "bad.json: *", {"bad.json": twice.encode()})
    return rows


def texts() -> dict[str, Bad]:
    """The rows."""
    return {**_tables(), **_configurations(), **_policies()}
