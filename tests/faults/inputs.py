"""What the jobs read, made in a process of its own: ``python -m tests.faults.inputs FOLDER``.

The process that forks the jobs stays small, without torch.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path

from tests.make import SETTINGS, make_state, save
from tests.parity.test_reports import passing


def main() -> None:
    """Two checkpoints, two verdicts and the settings of the checkpoints."""
    folder = Path(sys.argv[1])
    for seed, edition in enumerate(("old", "new")):
        save(folder / f"{edition}.ckpt", make_state(seed=seed))
        verdict = replace(passing(), checkpoint=f"runs/{edition}.ckpt")
        (folder / f"{edition}.verdict").write_bytes(pickle.dumps(verdict))
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    (folder / "settings").write_text("\n".join(settings))


if __name__ == "__main__":
    main()
