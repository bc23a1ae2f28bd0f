"""Models of torchvision: its classes with few and narrow layers."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from parity_tests.port.entries import entry

CLASSIFICATION = "torchvision classification"
IMAGE = "x: b 3 h=64..96 w=64..96"


@entry(CLASSIFICATION, IMAGE)
def resnet() -> nn.Module:
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)


@entry(CLASSIFICATION, IMAGE)
def resnext() -> nn.Module:
    from torchvision.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, [1, 1, 1, 1], num_classes=10, groups=8, width_per_group=4)


@entry(CLASSIFICATION, IMAGE)
def densenet() -> nn.Module:
    from torchvision.models import DenseNet

    return DenseNet(growth_rate=8, block_config=(2, 2, 3, 2), num_init_features=16, num_classes=10)


@entry(CLASSIFICATION, IMAGE)
def squeezenet() -> nn.Module:
    from torchvision.models import squeezenet1_1

    return squeezenet1_1(num_classes=10)


@entry(CLASSIFICATION, IMAGE)
def mobilenet_v2() -> nn.Module:
    from torchvision.models import MobileNetV2

    return MobileNetV2(num_classes=10, width_mult=0.25)


@entry(CLASSIFICATION, IMAGE)
def mobilenet_v3() -> nn.Module:
    from torchvision.models import mobilenet_v3_small

    return mobilenet_v3_small(num_classes=10, width_mult=0.5)


@entry(CLASSIFICATION, IMAGE)
def shufflenet_v2() -> nn.Module:
    from torchvision.models import ShuffleNetV2

    return ShuffleNetV2([2, 3, 2], [8, 16, 32, 64, 128], num_classes=10)


@entry(CLASSIFICATION, IMAGE)
def googlenet() -> nn.Module:
    from torchvision.models import GoogLeNet

    return GoogLeNet(num_classes=10, aux_logits=False, transform_input=True, init_weights=False)


@entry(CLASSIFICATION, IMAGE)
def efficientnet() -> nn.Module:
    from torchvision.models import EfficientNet
    from torchvision.models.efficientnet import MBConvConfig

    setting = [
        MBConvConfig(1, 3, 1, 16, 8, 1),
        MBConvConfig(6, 3, 2, 8, 16, 2),
        MBConvConfig(6, 5, 2, 16, 24, 2),
        MBConvConfig(6, 3, 2, 24, 32, 1),
    ]
    return EfficientNet(setting, dropout=0.2, num_classes=10, norm_layer=partial(nn.BatchNorm2d, eps=1e-3))


@entry(CLASSIFICATION, IMAGE)
def regnet() -> nn.Module:
    from torchvision.models import RegNet
    from torchvision.models.regnet import BlockParams

    params = BlockParams.from_init_params(depth=6, w_0=16, w_a=12.0, w_m=2.0, group_width=8, se_ratio=0.25)
    return RegNet(params, num_classes=10, stem_width=16)


@entry(CLASSIFICATION, IMAGE)
def convnext() -> nn.Module:
    from torchvision.models import ConvNeXt
    from torchvision.models.convnext import CNBlockConfig

    setting = [CNBlockConfig(16, 32, 1), CNBlockConfig(32, 48, 1), CNBlockConfig(48, 64, 2), CNBlockConfig(64, None, 1)]
    return ConvNeXt(setting, stochastic_depth_prob=0.1, num_classes=10)


@entry(CLASSIFICATION, "x: b 3 32 32")
def vit() -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(
        image_size=32, patch_size=8, num_layers=3, num_heads=4, hidden_dim=48, mlp_dim=96, num_classes=10
    )


@entry(CLASSIFICATION, IMAGE)
def swin() -> nn.Module:
    from torchvision.models import SwinTransformer

    return SwinTransformer(
        patch_size=[4, 4], embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=[7, 7], num_classes=10
    )


def _mobile_backbone(layers: dict[str, str]) -> Any:
    """The features of a narrow MobileNetV3, those of some layers by other names."""
    from torchvision.models import mobilenet_v3_small
    from torchvision.models._utils import IntermediateLayerGetter

    return IntermediateLayerGetter(mobilenet_v3_small(width_mult=0.5, dilated=True).features, return_layers=layers)


@entry("torchvision segmentation", IMAGE)
def deeplabv3() -> nn.Module:
    from torchvision.models.segmentation import DeepLabV3
    from torchvision.models.segmentation.deeplabv3 import DeepLabHead
    from torchvision.models.segmentation.fcn import FCNHead

    backbone = _mobile_backbone({"11": "out", "3": "aux"})
    return DeepLabV3(backbone, DeepLabHead(48, 5, (2, 4, 6)), FCNHead(16, 5))


@entry("torchvision segmentation", "input: b 3 h=64..96 w=64..96")
def lraspp() -> nn.Module:
    from torchvision.models.segmentation import LRASPP

    return LRASPP(_mobile_backbone({"3": "low", "12": "high"}), 16, 288, num_classes=5, inter_channels=32)


VIDEO = "torchvision video"


@entry(VIDEO, "x: b 3 t=4..6 h=32..48 w=32..48")
def mixed_convolution() -> nn.Module:
    from torchvision.models.video.resnet import BasicBlock, BasicStem, Conv3DNoTemporal, Conv3DSimple, VideoResNet

    convolutions = [Conv3DSimple] + [Conv3DNoTemporal] * 3
    return VideoResNet(BasicBlock, convolutions, [1, 1, 1, 1], BasicStem, num_classes=10)


@entry(VIDEO, "x: b 3 4 32 32")
def mvit() -> nn.Module:
    from torchvision.models.video.mvit import MSBlockConfig, MViT

    setting = [
        MSBlockConfig(1, 16, 32, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 4, 4]),
        MSBlockConfig(2, 32, 32, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 2, 2]),
        MSBlockConfig(2, 32, 32, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2]),
    ]
    return MViT(
        (32, 32), 4, setting, residual_pool=True, residual_with_cls_embed=False, rel_pos_embed=True,
        proj_after_attn=True, num_classes=10,
    )  # fmt: skip


@entry("torchvision optical flow", "image1: b 3 h=128..136 w=128..144", "image2: b 3 h w")
def raft() -> nn.Module:
    from torchvision.models.optical_flow import raft_small

    return raft_small()
