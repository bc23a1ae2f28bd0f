"""`verify --full` passes a correct port of every family, in every configuration that faults and source edits use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wdport
from parity_tests.edits.runs import more
from parity_tests.faults import FAMILIES, fault_set
from wdport.parity.selftest.specimen import Specimen

CONFIGURATIONS: list[tuple[str, str, Any]] = []
for family in FAMILIES:
    examples = fault_set(family).examples
    CONFIGURATIONS += [(family, name, config) for name, config in examples.items()]
    CONFIGURATIONS += [(family, f"further {index}", config) for index, config in enumerate(more(family, examples))]


@pytest.mark.full
@pytest.mark.parametrize(
    ("family", "name", "config"), CONFIGURATIONS, ids=[f"{family}, {name}" for family, name, _ in CONFIGURATIONS]
)
def test_a_correct_port_passes(family: str, name: str, config: Any, tmp_path: Path) -> None:
    specimen = Specimen(family, fault_set(family), config)
    paths = [tmp_path / f"a{source.suffix}" for source in (specimen.checkpoint, specimen.converted)]
    for path, source in zip(paths, (specimen.checkpoint, specimen.converted), strict=True):
        path.write_bytes(source.read_bytes())
    verdict = wdport.verify(*paths, full=True)
    faults = {gate.name: list(map(str, gate.findings))[:4] for gate in verdict.gates if not gate.passed}
    assert faults == {}
    assert verdict.exit_code == 0
