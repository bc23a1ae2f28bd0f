"""Pairs for the pytest plugin: a folder in, checkpoints and their ports in it, and pytest's options on standard output.

``python -m parity_tests.pairs FOLDER [--recorded]``; with the flag also the recorded checkpoints next to the project,
if they are there, whose ports go into the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import wdport
from tests.make import NO_CROSS, QK_NORM, SETTINGS, SMALL, make_state, save

RECORDED = Path(__file__).parents[2] / "shared" / "golden"
CONFIGS = {"official": SMALL, "qk-norm": QK_NORM}
MORE = {"no-cross-level": NO_CROSS}
"""For the long runs, with the recorded ones."""


def main(folder: Path, recorded: bool) -> list[str]:
    """Make the pairs; the options, checkpoint and port by turns."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = []
    for name, config in (CONFIGS | MORE if recorded else CONFIGS).items():
        checkpoint = save(folder / f"{name}.ckpt", make_state(config))
        pairs.append((checkpoint, wdport.convert(checkpoint, values=SETTINGS, force=True).output))
    for config in sorted(RECORDED.glob("*.config.yaml")) if recorded else ():
        name = config.name.removesuffix(".config.yaml")
        checkpoint = next(path for path in RECORDED.glob(f"{name}.*") if path.suffix in (".ckpt", ".pt"))
        pairs.append(
            (checkpoint, wdport.convert(checkpoint, folder / f"{name}.keras", config=config, force=True).output)
        )
    return [f"--wdport-checkpoint {a} --wdport-converted {b}" for a, b in pairs]


if __name__ == "__main__":
    sys.stdout.write(" ".join(main(Path(sys.argv[1]), "--recorded" in sys.argv)) + "\n")
