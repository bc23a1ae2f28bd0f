"""Writes the reports that a browser is to look at: ``python -m tests.browser.pages FOLDER``."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

from tests.parity.test_reports import failing, incomplete, passing
from wdport.compare.findings import GATES, measure
from wdport.parity.policy import read_policy
from wdport.parity.policy.judge import Terms, judge
from wdport.parity.verdict import Verdict

POLICY = """
[bounds]
numerics = { value = 20, reason = "stored in 16 bits", expires = 2027-01-31 }
[[waivers]]
tap = "block.1.norm"
gate = "float32"
reason = "fused kernel"
expires = 2027-01-31
"""
LONG = "level_transformers.{}.blocks.{}.cross_level_attention.feed_forward.norm2.ada_lin"


def full() -> Verdict:
    """As long as a real one: 200 layers with names of 70 characters, gradients and bfloat16, every gate."""
    taps = tuple(
        replace(passing().taps[at % 10], reference=LONG.format(at // 20, at), candidate=f"level_{at}/block/norm2",
                gradient=1e-15, bfloat16=1.2)
        for at in range(200)
    )  # fmt: skip
    gates = [term.gate(200, 200, (measure(taps[7].reference, "float32", 1.5, "numerics"),)) for term in GATES.values()]
    digests = {"checkpoint": "a1" * 32, "converted": "b2" * 32}
    return replace(passing(), taps=taps, gates=tuple(gates), digests=digests, started="2026-11-22T18:05:00Z")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "parity.toml").write_text(POLICY)
    today = date(2026, 11, 22)
    unmet = judge(passing(), Terms(read_policy(folder / "parity.toml", today)), today)
    for name, verdict in {"passing": full(), "failing": failing(), "policy": unmet, "incomplete": incomplete()}.items():
        (folder / f"{name}.html").write_text(verdict.to_html(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
