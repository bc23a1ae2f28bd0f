"""Models of diffusers: transformers, U-Nets and autoencoders in the library's configurations, with small sizes."""

from __future__ import annotations

from typing import Any

from torch import nn

from parity_tests.port.entries import entry


def _model(class_name: str, **settings: Any) -> nn.Module:
    import diffusers

    model: nn.Module = getattr(diffusers, class_name)(**settings)
    return model


TIMESTEP = "timestep: b, below 1000"


@entry("diffusers", "sample: b 3 h=16..24 w=16..24", TIMESTEP)
def unet2d() -> nn.Module:
    return _model(
        "UNet2DModel", block_out_channels=(16, 32), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), norm_num_groups=4, layers_per_block=1,
    )  # fmt: skip


@entry("diffusers", "sample: b 4 h=16..24 w=16..24", TIMESTEP, "encoder_hidden_states: b t=7..11 24")
def unet2d_condition() -> nn.Module:
    return _model(
        "UNet2DConditionModel", block_out_channels=(16, 32), norm_num_groups=4, layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=24, attention_head_dim=4,
    )  # fmt: skip


@entry("diffusers", "sample: b 2 t=64..96", TIMESTEP)
def unet1d() -> nn.Module:
    return _model("UNet1DModel", block_out_channels=(32, 32, 64), extra_in_channels=16, time_embedding_dim=16)


@entry("diffusers", "sample: b 3 h=16..24 w=16..24")
def autoencoder_kl() -> nn.Module:
    return _model(
        "AutoencoderKL", block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4,
    )  # fmt: skip


@entry("diffusers", "sample: b 3 h=32..48 w=32..48")
def autoencoder_tiny() -> nn.Module:
    return _model(
        "AutoencoderTiny", encoder_block_out_channels=(16,) * 4, decoder_block_out_channels=(16,) * 4,
        num_encoder_blocks=(1, 1, 2, 1), num_decoder_blocks=(1, 2, 1, 1),
    )  # fmt: skip


@entry("diffusers", "sample: b 3 h=16..24 w=16..24")
def vq_model() -> nn.Module:
    return _model(
        "VQModel", block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4, num_vq_embeddings=32,
    )  # fmt: skip


@entry("diffusers", "hidden_states: b 4 16 16", TIMESTEP, "class_labels: b, below 10")
def dit() -> nn.Module:
    return _model(
        "DiTTransformer2DModel", num_attention_heads=4, attention_head_dim=8, num_layers=2, sample_size=16,
        norm_num_groups=4, num_embeds_ada_norm=10,
    )  # fmt: skip


@entry("diffusers", "hidden_states: b 4 16 16", "encoder_hidden_states: b t=7..11 24", TIMESTEP,
       "encoder_attention_mask: b t, mask")  # fmt: skip
def pixart() -> nn.Module:
    return _model(
        "PixArtTransformer2DModel", num_attention_heads=4, attention_head_dim=8, num_layers=2, sample_size=16,
        norm_num_groups=4, cross_attention_dim=32, caption_channels=24,
    )  # fmt: skip


@entry("diffusers", "hidden_states: b 4 h=16..24 w=16..24", "encoder_hidden_states: b t=7..11 24",
       "pooled_projections: b 20", TIMESTEP)  # fmt: skip
def sd3() -> nn.Module:
    return _model(
        "SD3Transformer2DModel", sample_size=32, in_channels=4, out_channels=4, num_layers=2, attention_head_dim=8,
        num_attention_heads=4, joint_attention_dim=24, caption_projection_dim=32, pooled_projection_dim=20,
        pos_embed_max_size=16, qk_norm="rms_norm",
    )  # fmt: skip


@entry("diffusers", "hidden_states: b n=16..36 16", "encoder_hidden_states: b t=7..11 24", "pooled_projections: b 20",
       "timestep: b, from 0 to 1", "img_ids: n 3", "txt_ids: t 3")  # fmt: skip
def flux() -> nn.Module:
    return _model(
        "FluxTransformer2DModel", in_channels=16, num_layers=1, num_single_layers=2, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=24, pooled_projection_dim=20, axes_dims_rope=(4, 4, 8),
    )  # fmt: skip
