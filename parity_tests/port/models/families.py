"""The PyTorch references of wdport's own families, in small configurations."""

from __future__ import annotations

from torch import nn

from parity_tests.port.entries import entry

GROUP = "wdport families"


@entry(GROUP, "coefficients: b 31 3, parts 5 5 8 13", "time: b, steps 1000")
def waveletdiff() -> nn.Module:
    from tests.make import SMALL
    from wdport.uses.waveletdiff.reference import WaveletDiff

    return WaveletDiff(SMALL)


@entry(GROUP, "sample: b 3 h=8..16 w=8..16", "timestep: b, below 1000")
def unet2d() -> nn.Module:
    from tests.uses.unet2d.make import fields_of
    from wdport.uses.unet2d.config import Config
    from wdport.uses.unet2d.reference import LIBRARY

    return LIBRARY.build(Config.from_dict(fields_of("resnets change the size, scale_shift")).to_dict())


@entry(GROUP, "input_ids: b n=24..64, below 30", "attention_mask: b n, mask")
def masked_lm() -> nn.Module:
    from tests.uses.masked_lm.make import config_of, fields_of
    from wdport.uses.masked_lm.reference import library_model

    return library_model(config_of(fields_of("as published")))


@entry(GROUP, "video: b 3 t=5..9 16 16")
def wan_vae() -> nn.Module:
    from tests.uses.wan_vae.make import OLD
    from wdport.uses.wan_vae.config import Config
    from wdport.uses.wan_vae.reference import LIBRARY

    return LIBRARY.build(Config.from_dict(OLD).to_dict())


@entry(GROUP, "series: b t=24..40 2")
def ts2vec() -> nn.Module:
    from tests.uses.ts2vec.make import SMALL
    from wdport.uses.ts2vec.reference import TS2Vec

    return TS2Vec(SMALL)
