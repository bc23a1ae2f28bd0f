"""The reference's own forward computes what the library's does."""

from __future__ import annotations

import diffusers
import numpy as np
import torch

from tests.families.wan_vae.make import VARIANTS, tensors_of
from wdport.families.wan_vae import reference
from wdport.families.wan_vae.config import Config
from wdport.families.wan_vae.family import signature
from wdport.recorder import run


def test_the_librarys_own_forward_gives_the_same() -> None:
    """Our forward, with what the library keeps of past frames hidden from the recorder, computes what it computes."""
    fields = VARIANTS["Wan 2.1, frames halved twice"]
    config, tensors = Config.from_dict(fields), tensors_of(fields)
    (video,) = signature(config).make(0, 2, 1.0)
    wrapped = reference.build_reference(config, tensors, "float32")
    plain = diffusers.AutoencoderKLWan(**fields)
    plain.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})
    with torch.no_grad():
        right = plain.eval()(torch.from_numpy(video).float()).sample.numpy()
    assert np.array_equal(run(wrapped, (video.astype(np.float32),))[2], right)
