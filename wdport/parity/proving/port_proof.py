"""Prove a port that was written, from its source."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from wdport.compare.activities import Say
from wdport.files.atomic import scratch_folder, write_text
from wdport.files.outputs import writable
from wdport.parity.proving.port import WrittenPort
from wdport.parity.proving.proof import prove, verify_table

if TYPE_CHECKING:
    from wdport.parity.verdict import Verdict


def _labelled(say: Say | None, weights: str) -> Say | None:
    """Progress with the weights that are compared in front of it."""
    return None if say is None else lambda step: say(f"{weights}: {step}")


def prove_port(port: WrittenPort, checkpoint: str | None = None, say: Say | None = None) -> None:
    """Prove a port: with random weights, then with those of a checkpoint. Its module is written to a temporary folder,
    and imported from there."""
    from wdport.parity.training_mode_gate import with_keras_statistics

    suggestion = port.suggestion
    assert suggestion is not None
    name = suggestion.models.model.partition(":")[0]

    def trained(table: Path, weights: Path, config: Path | None, say: Say | None) -> Verdict:
        verdict = verify_table(table, weights, config, say, train=port.trains, gradients=not port.trains)
        return replace(verdict, gates=tuple(map(with_keras_statistics, verdict.gates)))

    with scratch_folder() as folder:
        write_text(writable(Path(folder, f"{name}.py")), port.source)
        sys.path.insert(0, str(folder))
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        try:
            prove(suggestion, say=_labelled(say, "random weights") if checkpoint else say, verify=trained)
            if checkpoint and suggestion.proved:
                prove(suggestion, checkpoint, _labelled(say, Path(checkpoint).name), trained)
        finally:
            sys.path.remove(str(folder))
            sys.modules.pop(name, None)  # the file that is imported next is the user's
    port.verdict, port.failure, port.table = suggestion.verdict, suggestion.failure, suggestion.text()
