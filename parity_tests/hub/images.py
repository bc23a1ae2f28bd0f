"""Image and audio models of torchvision and transformers, and those of KerasHub and ``keras.applications``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from parity_tests.hub.pairs import pair

IMAGE = "image: b 3 h=64..96 w=64..96"


@pair("torchvision.models.ResNet (Bottleneck)", "keras_hub.models.ResNetImageClassifier", IMAGE, table="hub-resnet")
class resnet:
    def torch():
        from torchvision.models.resnet import Bottleneck, ResNet

        return ResNet(Bottleneck, [2, 1, 1, 1], num_classes=5)

    def keras():
        from keras_hub.models import ResNetBackbone, ResNetImageClassifier

        backbone = ResNetBackbone([64], [7], [64, 128, 256, 512], [2, 1, 1, 1], [1, 2, 2, 2], "bottleneck_block")
        return ResNetImageClassifier(backbone, num_classes=5)


@pair("torchvision.models.ResNet (BasicBlock)", "keras_hub.models.ResNetImageClassifier", IMAGE, table="hub-resnet")
class resnet_basic:
    def torch():
        from torchvision.models.resnet import BasicBlock, ResNet

        return ResNet(BasicBlock, [2, 1, 1, 1], num_classes=5)

    def keras():
        from keras_hub.models import ResNetBackbone, ResNetImageClassifier

        backbone = ResNetBackbone([64], [7], [64, 128, 256, 512], [2, 1, 1, 1], [1, 2, 2, 2], "basic_block")
        return ResNetImageClassifier(backbone, num_classes=5)


def resnet_of_applications(size: int) -> Any:
    """ResNet50 with fewer blocks."""
    from keras.src.applications.resnet import ResNet, stack_residual_blocks_v1

    def blocks(x: Any) -> Any:
        x = stack_residual_blocks_v1(x, 64, 2, stride1=1, name="conv2")
        for stage in (1, 2, 3):
            x = stack_residual_blocks_v1(x, 64 << stage, 1, name=f"conv{stage + 2}")
        return x

    shape = (size, size, 3)
    return ResNet(blocks, False, True, weights=None, classes=5, classifier_activation=None, input_shape=shape)


@pair("torchvision.models.ResNet (Bottleneck)", "keras.applications.resnet.ResNet", "image: b 3 64 64")
class resnet_applications:
    def torch():
        from torchvision.models.resnet import Bottleneck, ResNet

        return ResNet(Bottleneck, [2, 1, 1, 1], num_classes=5)

    def keras():
        return resnet_of_applications(64)


def as_in_torch(model: Any) -> Any:
    """A model of ``keras.applications`` with PyTorch's epsilon and, for a ResNet, with the stride in the second
    convolution of a block."""
    import keras

    def changed(layer: Any) -> Any:
        config = layer.get_config()
        if isinstance(layer, keras.layers.BatchNormalization):
            config["epsilon"] = 1e-5
        elif isinstance(layer, keras.layers.Conv2D):
            stage, block, place, *_ = (*layer.name.split("_"), "", "")
            if block == "block1" and place in ("1", "2"):
                config["strides"] = 2 if place == "2" and stage != "conv2" else 1
        return type(layer).from_config(config)

    return keras.models.clone_model(model, clone_function=changed)


@pair(
    "torchvision.models.ResNet (Bottleneck)",
    "keras.applications.resnet.ResNet, changed, images of 32 n + 1",
    "image: b 3 65 65",
    table="applications-resnet",
)
class resnet_applications_odd:
    torch = resnet_applications.torch

    def keras():
        return as_in_torch(resnet_of_applications(65))


def vgg16_of(width: int, classes: int) -> Any:
    """VGG16 with other widths."""
    from torchvision.models.vgg import VGG, make_layers

    widths = [size for count in (2, 2, 3, 3, 3) for size in (*[width] * count, "M")]
    model = VGG(make_layers(widths), num_classes=classes, init_weights=False)
    model.classifier[0], model.classifier[3] = nn.Linear(width * 49, 32), nn.Linear(32, 32)
    model.classifier[6] = nn.Linear(32, classes)
    return model


@pair("torchvision.models.vgg16", "keras_hub.models.VGGImageClassifier", "image: b 3 224 224", table="hub-vgg16")
class vgg:
    def torch():
        return vgg16_of(4, 5)

    def keras():
        from keras_hub.models import VGGBackbone, VGGImageClassifier

        backbone = VGGBackbone([2, 2, 3, 3, 3], [4] * 5, image_shape=(224, 224, 3))
        return VGGImageClassifier(backbone, num_classes=5, pooling="flatten", pooling_hidden_dim=32)


class Features(nn.Module):
    """What VGG16 computes before its pooling."""

    def __init__(self) -> None:
        super().__init__()
        from torchvision.models import vgg16

        self.features = vgg16(init_weights=False).features

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.features(image)


@pair("torchvision.models.vgg16 (features)", "keras.applications.VGG16 without include_top",
      "image: b 3 h=32..64 w=32..64", table="applications-vgg16")  # fmt: skip
class vgg_applications:
    def torch():
        return Features()

    def keras():
        from keras.applications import VGG16

        return VGG16(include_top=False, weights=None, input_shape=(None, None, 3))


@pair("torchvision.models.MobileNetV2", "keras.applications.MobileNetV2", "image: b 3 64 64")
class mobilenet_v2_applications:
    def torch():
        from torchvision.models import MobileNetV2

        return MobileNetV2(num_classes=5, width_mult=0.35)

    def keras():
        from keras.applications import MobileNetV2

        return MobileNetV2((64, 64, 3), alpha=0.35, weights=None, classes=5, classifier_activation=None)


@pair(
    "torchvision.models.MobileNetV2",
    "keras.applications.MobileNetV2, changed, images of 32 n + 1",
    "image: b 3 65 65",
    table="applications-mobilenetv2",
)
class mobilenet_v2_odd:
    torch = mobilenet_v2_applications.torch

    def keras():
        from keras.applications import MobileNetV2

        model = MobileNetV2((65, 65, 3), alpha=0.35, weights=None, classes=5, classifier_activation=None)
        return as_in_torch(model)


@pair(
    "timm mobilenetv3_small_050",
    "keras_hub.models.MobileNetImageClassifier",
    "image: b 3 64 64",
    table="hub-mobilenetv3",
)
class mobilenet_v3:
    def torch():
        import timm

        return timm.create_model("mobilenetv3_small_050", num_classes=5)

    def keras():
        from keras_hub.models import MobileNetBackbone, MobileNetImageClassifier
        from keras_hub.src.utils.timm.convert_mobilenet import convert_backbone_config

        config = convert_backbone_config({"architecture": "mobilenetv3_small_050"})
        backbone = MobileNetBackbone(image_shape=(64, 64, 3), **config)
        return MobileNetImageClassifier(backbone, num_classes=5)


@pair("torchvision.models.efficientnet_b0", "keras.applications.EfficientNetB0", "image: b 3 64 64")
class efficientnet_applications:
    def torch():
        from torchvision.models import efficientnet_b0

        return efficientnet_b0(num_classes=5)

    def keras():
        from keras.applications import EfficientNetB0

        return EfficientNetB0(weights=None, classes=5, classifier_activation=None, input_shape=(64, 64, 3))


@pair("torchvision.models.DenseNet", "keras_hub.models.DenseNetImageClassifier", IMAGE)
class densenet:
    def torch():
        from torchvision.models import DenseNet

        return DenseNet(8, (2, 2, 3, 2), 64, num_classes=5)

    def keras():
        from keras_hub.models import DenseNetBackbone, DenseNetImageClassifier

        backbone = DenseNetBackbone([2, 2, 3, 2], growth_rate=8)
        return DenseNetImageClassifier(backbone, num_classes=5)


@pair(
    "torchvision.models.DenseNet with Keras's epsilon",
    "keras_hub.models.DenseNetImageClassifier, images of 32 n + 1",
    "image: b 3 h=65..97 w=65..97",
    table="hub-densenet",
)
class densenet_odd:
    def torch():
        from torchvision.models import DenseNet

        model = DenseNet(8, (2, 2, 3, 2), 64, num_classes=5)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps = 1.001e-5
        return model

    def keras():
        from keras_hub.models import DenseNetBackbone, DenseNetImageClassifier

        return DenseNetImageClassifier(DenseNetBackbone([2, 2, 3, 2], growth_rate=8), num_classes=5)


@pair(
    "torchvision.models.ConvNeXt",
    "keras.applications.convnext.ConvNeXt",
    "image: b 3 64 64",
    table="applications-convnext",
)
class convnext:
    def torch():
        from torchvision.models.convnext import CNBlockConfig, ConvNeXt

        return ConvNeXt(
            [CNBlockConfig(8, 16, 1), CNBlockConfig(16, 24, 2), CNBlockConfig(24, 32, 1), CNBlockConfig(32, None, 1)],
            num_classes=5,
        )

    def keras():
        from keras.src.applications.convnext import ConvNeXt

        return ConvNeXt(
            [1, 2, 1, 1],
            [8, 16, 24, 32],
            include_preprocessing=False,
            weights=None,
            classes=5,
            classifier_activation=None,
            input_shape=(64, 64, 3),
            name="convnext",
        )


@pair("transformers.ViTModel", "keras_hub.models.ViTBackbone", "pixel_values: b 3 32 32", table="hub-vit")
class vit:
    def torch():
        from transformers import ViTConfig, ViTModel

        return ViTModel(
            ViTConfig(
                hidden_size=16,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=32,
                image_size=32,
                patch_size=8,
                layer_norm_eps=1e-6,
            ),
            add_pooling_layer=False,
        )

    def keras():
        from keras_hub.models import ViTBackbone

        return ViTBackbone((32, 32, 3), 8, 2, 2, 16, 32)


@pair("transformers.WhisperModel (encoder)", "keras_hub.models.WhisperBackbone (encoder)",
      "input_features -> encoder_features: b c=8 s=32 -> b s c", table="hub-whisper-encoder")  # fmt: skip
class whisper_encoder:
    def torch():
        from transformers import WhisperConfig, WhisperModel

        config = WhisperConfig(
            vocab_size=40,
            num_mel_bins=8,
            encoder_layers=2,
            encoder_attention_heads=2,
            decoder_layers=1,
            decoder_attention_heads=2,
            decoder_ffn_dim=32,
            encoder_ffn_dim=32,
            d_model=24,
            max_source_positions=16,
            pad_token_id=1,
            bos_token_id=2,
            eos_token_id=3,
            decoder_start_token_id=4,
            use_cache=False,
            max_target_positions=12,
        )
        return WhisperModel(config).encoder

    def keras():
        import keras
        from keras_hub.models import WhisperBackbone

        backbone = WhisperBackbone(
            40, 2, 2, 24, 32, num_mels=8, max_encoder_sequence_length=32, max_decoder_sequence_length=12
        )
        return keras.Model(backbone.input["encoder_features"], backbone.output["encoder_sequence_output"])
