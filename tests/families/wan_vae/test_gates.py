"""The gate chunks (G): correct codecs pass, and known faults of chunks and bytes are found where they are."""

from __future__ import annotations

import pytest

from parity_tests.faults import wan_vae
from parity_tests.faults.wan_vae import chunks
from parity_tests.faults.wan_vae.chunks import FAULTS, run_chunk_faults
from tests.families.wan_vae.make import OLD, VARIANTS
from wdport.families.wan_vae.config import Config
from wdport.families.wan_vae.family import FAMILY


def test_a_truncating_cast_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a correct codec passes."""
    (gate,) = FAMILY.gates(Config.from_dict(OLD))
    assert gate.passed
    assert (gate.name, gate.compared) == ("G", 11)
    monkeypatch.setattr(chunks, "FAULTS", FAULTS[:1])
    (kill,) = run_chunk_faults({"Wan 2.1": Config.from_dict(OLD)})
    assert (kill.mutant, kill.gate, kill.sites, kill.right) == ("bytes: truncating cast", "G", ("bytes",), True)


@pytest.mark.full
@pytest.mark.parametrize("name", VARIANTS)
def test_every_kind_passes(name: str) -> None:
    (gate,) = FAMILY.gates(Config.from_dict(VARIANTS[name]))
    assert gate.passed, [str(finding) for finding in gate.findings]


@pytest.mark.full
def test_every_fault_is_found_at_its_place() -> None:
    (group,) = wan_vae.FAULTS.around({})
    kills = list(group.kills)
    assert len(kills) == 2 * len(FAULTS) == 24
    assert [f"{kill.example}: {kill.mutant}: {kill.sites}" for kill in kills if not kill.right] == []
