"""Models of timm, by the names of its registry, with few and narrow layers."""

from __future__ import annotations

from typing import Any

from torch import nn

from parity_tests.port.entries import entry

IMAGE = "x: b 3 h=64..96 w=64..96"


def _model(name: str, **settings: Any) -> nn.Module:
    import timm

    model: nn.Module = timm.create_model(name, num_classes=10, **settings)
    return model


@entry("timm", "x: b 3 32 32")
def vit() -> nn.Module:
    return _model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=3)


@entry("timm", "x: b 3 32 32")
def deit() -> nn.Module:
    return _model("deit_tiny_distilled_patch16_224", img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=3)


@entry("timm", "x: b 3 56 56")
def swin() -> nn.Module:
    return _model("swin_tiny_patch4_window7_224", img_size=56, embed_dim=24, depths=(2, 2), num_heads=(2, 4))


@entry("timm", IMAGE)
def convnext() -> nn.Module:
    return _model("convnextv2_atto", depths=(1, 1, 2, 1), dims=(16, 32, 48, 64))


@entry("timm", "x: b 3 32 32")
def mlp_mixer() -> nn.Module:
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(num_classes=10, img_size=32, patch_size=8, num_blocks=3, embed_dim=48)


@entry("timm", IMAGE)
def efficientnet() -> nn.Module:
    return _model("test_efficientnet")


@entry("timm", IMAGE)
def regnet() -> nn.Module:
    from timm.models.regnet import RegNet, RegNetCfg

    config = RegNetCfg(depth=6, w0=16, wa=12.0, wm=1.6, group_size=8, se_ratio=0.25, stem_width=16)
    return RegNet(config, num_classes=10)


@entry("timm", IMAGE)
def nfnet() -> nn.Module:
    return _model("test_nfnet")


@entry("timm", "x: b 3 32 32")
def beit() -> nn.Module:
    return _model("beit_base_patch16_224", img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=3)


@entry("timm", "x: b 3 64 64")
def coat() -> nn.Module:
    return _model("coat_tiny", img_size=64, embed_dims=(16, 32, 32, 32), serial_depths=(1, 1, 1, 1), parallel_depth=1,
                  num_heads=8, mlp_ratios=(2, 2, 2, 2))  # fmt: skip
