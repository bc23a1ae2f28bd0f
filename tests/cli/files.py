"""Small files of every kind that a command reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import wdport
from tests.make import SETTINGS, make_state, save
from tests.uses.masked_lm import make as masked_lm
from tests.uses.wan_vae import make as wan_vae


def make_files(folder: Path) -> Path:
    """Write them into a folder, and return it."""
    wdport.convert(save(folder / "a.ckpt", make_state()), folder / "a.keras", values=SETTINGS)
    wdport.convert(wan_vae.save(folder / "vae", wan_vae.OLD), folder / "v.keras")
    wdport.convert(masked_lm.save(folder / "lm", masked_lm.fields_of("as published")), folder / "m.keras")
    rng = np.random.default_rng(0)
    np.save(folder / "video.npy", rng.uniform(-1, 1, (1, 5, 16, 16, 3)).astype(np.float32))
    np.savez(folder / "latents.npz", latents=rng.normal(size=(1, 2, 2, 2, 2)).astype(np.float32))
    np.savez(folder / "s.npz", series=rng.normal(size=(40, 24, 3)))
    np.savetxt(folder / "d.csv", rng.normal(size=(80, 3)), delimiter=",")
    (folder / "ids.json").write_text("[[1, 2, 4, 4]]")
    (folder / "c.yaml").write_text("dataset:\n  seq_len: 24\nwavelet:\n  type: db2\n")
    (folder / "t.yaml").write_text("format: 2\ntorch: tests.user_model:small\nkeras: tests.user_model:small\n")
    return folder
