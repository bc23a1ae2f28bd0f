"""Models of transformers that read images, sound and time series."""

from __future__ import annotations

from torch import nn

from parity_tests.port.entries import entry
from parity_tests.port.models.transformers import NARROW, transformers_model

VISION = "transformers vision"
LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


@entry(VISION, "pixel_values: b 3 32 32")
def vit() -> nn.Module:
    return transformers_model("ViTForImageClassification", "ViTConfig", **LAYERS, image_size=32, patch_size=8)


@entry(VISION, "pixel_values: b 3 h=32..64 w=32..64")
def swin() -> nn.Module:
    return transformers_model(
        "SwinModel", "SwinConfig", image_size=32, patch_size=2, embed_dim=16, depths=(2, 2), num_heads=(2, 4),
        window_size=4,
    )  # fmt: skip


@entry(VISION, "pixel_values: b 3 h=28..42 w=28..42")
def dinov2() -> nn.Module:
    return transformers_model(
        "Dinov2Model", "Dinov2Config", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, mlp_ratio=2,
        image_size=56, patch_size=7,
    )  # fmt: skip


@entry(VISION, "pixel_values: b 3 h=64..96 w=64..96")
def segformer() -> nn.Module:
    return transformers_model(
        "SegformerForSemanticSegmentation", "SegformerConfig", depths=(1, 1, 1, 1), hidden_sizes=(8, 16, 20, 32),
        num_attention_heads=(1, 2, 4, 4), mlp_ratios=(2, 2, 2, 2), decoder_hidden_size=16, num_labels=5,
    )  # fmt: skip


@entry(VISION, "input_ids: b t=7..12, below 99", "pixel_values: b 3 32 32", "attention_mask: b t, mask")
def clip() -> nn.Module:
    return transformers_model(
        "CLIPModel", "CLIPConfig", projection_dim=16,
        text_config={**LAYERS, "vocab_size": 99, "max_position_embeddings": 16, "eos_token_id": 98, "bos_token_id": 97},
        vision_config={**LAYERS, "image_size": 32, "patch_size": 8},
    )  # fmt: skip


AUDIO = "transformers audio"
WAVE = "input_values: b t=1600..2400"
CONVOLUTIONS = {"conv_dim": (16,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}


@entry(AUDIO, WAVE)
def wav2vec2() -> nn.Module:
    return transformers_model("Wav2Vec2ForCTC", "Wav2Vec2Config", **LAYERS, **CONVOLUTIONS)


@entry(AUDIO, "input_features: b 20 60", "decoder_input_ids: b u=7..11, below 99")
def whisper() -> nn.Module:
    return transformers_model(
        "WhisperForConditionalGeneration", "WhisperConfig", **NARROW, num_mel_bins=20, max_source_positions=30,
        max_target_positions=24, decoder_start_token_id=97, pad_token_id=98, bos_token_id=98, eos_token_id=98,
    )  # fmt: skip


@entry(AUDIO, WAVE)
def hubert() -> nn.Module:
    return transformers_model(
        "HubertModel", "HubertConfig", **LAYERS, **CONVOLUTIONS, feat_extract_norm="layer", conv_bias=True,
        do_stable_layer_norm=True,
    )  # fmt: skip


@entry(AUDIO, "input_values: b 40 24")
def audio_spectrogram() -> nn.Module:
    return transformers_model(
        "ASTForAudioClassification", "ASTConfig", **LAYERS, patch_size=8, frequency_stride=6, time_stride=6,
        max_length=40, num_mel_bins=24,
    )  # fmt: skip


SERIES = "transformers time series"


@entry(SERIES, "past_values: b 32 3", "past_observed_mask: b 32 3, mask")
def patchtst() -> nn.Module:
    return transformers_model(
        "PatchTSTForPrediction", "PatchTSTConfig", num_input_channels=3, context_length=32, patch_length=8,
        patch_stride=4, d_model=32, ffn_dim=48, num_hidden_layers=2, prediction_length=12,
    )  # fmt: skip


@entry(SERIES, "past_values: b 32 3")
def patchtsmixer() -> nn.Module:
    return transformers_model(
        "PatchTSMixerForPrediction", "PatchTSMixerConfig", num_input_channels=3, context_length=32, patch_length=8,
        patch_stride=4, d_model=16, num_layers=2, mode="mix_channel", self_attn=True, self_attn_heads=2,
        prediction_length=12,
    )  # fmt: skip


FORECAST = (
    "past_values: b 16 2", "past_time_features: b 16 3", "past_observed_mask: b 16 2, mask",
    "future_values: b 4 2", "future_time_features: b 4 3",
)  # fmt: skip
HORIZON = {"prediction_length": 4, "context_length": 12, "lags_sequence": [1, 2, 4], "input_size": 2,
           "num_time_features": 3, "d_model": 32, "scaling": "std"}  # fmt: skip


@entry(SERIES, *FORECAST)
def time_series_transformer() -> nn.Module:
    return transformers_model("TimeSeriesTransformerModel", "TimeSeriesTransformerConfig", **HORIZON)


@entry(SERIES, *FORECAST)
def autoformer() -> nn.Module:
    return transformers_model("AutoformerModel", "AutoformerConfig", **HORIZON, moving_average=5)
