"""Models of transformers: its classes in the configurations of the library, with small sizes."""

from __future__ import annotations

from typing import Any

from torch import nn

from parity_tests.port.entries import entry

IDS = "input_ids: b t=12..20, below 99"
MASK = "attention_mask: b t, mask"


def transformers_model(class_name: str, config_name: str, **settings: Any) -> nn.Module:
    """A model with random weights."""
    import transformers

    config = getattr(transformers, config_name)(**settings)
    model: nn.Module = getattr(transformers, class_name)(config)
    return model


ENCODERS = "transformers encoders"
SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 48, "max_position_embeddings": 64}  # fmt: skip


@entry(ENCODERS, IDS, MASK, "token_type_ids: b t, below 2")
def bert() -> nn.Module:
    return transformers_model("BertForSequenceClassification", "BertConfig", **SMALL, num_labels=3)


@entry(ENCODERS, IDS, MASK)
def roberta() -> nn.Module:
    return transformers_model("RobertaForMaskedLM", "RobertaConfig", **SMALL)


@entry(ENCODERS, IDS, MASK)
def distilbert() -> nn.Module:
    return transformers_model(
        "DistilBertForQuestionAnswering",
        "DistilBertConfig",
        vocab_size=99,
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=48,
        max_position_embeddings=64,
    )


@entry(ENCODERS, IDS, MASK)
def electra() -> nn.Module:
    return transformers_model("ElectraForPreTraining", "ElectraConfig", **SMALL, embedding_size=16)


@entry(ENCODERS, IDS)
def albert() -> nn.Module:
    return transformers_model("AlbertModel", "AlbertConfig", **SMALL, embedding_size=16)


@entry(ENCODERS, IDS, MASK)
def deberta_v2() -> nn.Module:
    return transformers_model(
        "DebertaV2ForTokenClassification",
        "DebertaV2Config",
        **SMALL,
        num_labels=5,
        relative_attention=True,
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
    )


@entry(ENCODERS, IDS)
def mpnet() -> nn.Module:
    return transformers_model("MPNetModel", "MPNetConfig", **SMALL)


@entry(ENCODERS, IDS, MASK)
def modernbert() -> nn.Module:
    return transformers_model(
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        **SMALL,
        local_attention=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
    )


DECODERS = "transformers decoders"
GATED = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip


@entry(DECODERS, IDS)
def gpt2() -> nn.Module:
    return transformers_model(
        "GPT2LMHeadModel",
        "GPT2Config",
        vocab_size=99,
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=4,
        bos_token_id=98,
        eos_token_id=98,
    )


@entry(DECODERS, IDS)
def gpt_neo() -> nn.Module:
    return transformers_model(
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        vocab_size=99,
        max_position_embeddings=64,
        hidden_size=32,
        num_layers=2,
        attention_types=[[["global", "local"], 1]],
        num_heads=4,
        window_size=6,
        bos_token_id=98,
        eos_token_id=98,
    )


@entry(DECODERS, IDS)
def gpt_neox() -> nn.Module:
    return transformers_model("GPTNeoXForCausalLM", "GPTNeoXConfig", **SMALL)


@entry(DECODERS, IDS)
def opt() -> nn.Module:
    return transformers_model(
        "OPTForCausalLM",
        "OPTConfig",
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        ffn_dim=48,
        num_attention_heads=4,
        max_position_embeddings=64,
        word_embed_proj_dim=16,
    )


@entry(DECODERS, IDS, MASK)
def llama() -> nn.Module:
    return transformers_model("LlamaForCausalLM", "LlamaConfig", **GATED)


@entry(DECODERS, IDS)
def mistral() -> nn.Module:
    return transformers_model("MistralForCausalLM", "MistralConfig", **GATED, sliding_window=8)


@entry(DECODERS, IDS)
def qwen2() -> nn.Module:
    return transformers_model("Qwen2ForCausalLM", "Qwen2Config", **GATED, tie_word_embeddings=True)


@entry(DECODERS, IDS)
def gemma() -> nn.Module:
    return transformers_model("GemmaForCausalLM", "GemmaConfig", **GATED, head_dim=16)


@entry(DECODERS, IDS)
def falcon() -> nn.Module:
    return transformers_model(
        "FalconForCausalLM",
        "FalconConfig",
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        bos_token_id=1,
        eos_token_id=2,
    )


@entry(DECODERS, IDS)
def phi() -> nn.Module:
    return transformers_model("PhiForCausalLM", "PhiConfig", **{**GATED, "num_key_value_heads": 4})


TEXT_TO_TEXT = "transformers encoder-decoders"
TARGET = "decoder_input_ids: b u=7..11, below 99"


@entry(TEXT_TO_TEXT, IDS, MASK, TARGET)
def t5() -> nn.Module:
    return transformers_model(
        "T5ForConditionalGeneration",
        "T5Config",
        vocab_size=99,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=16,
    )


NARROW = {"vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
          "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}  # fmt: skip


@entry(TEXT_TO_TEXT, IDS, MASK, TARGET)
def bart() -> nn.Module:
    return transformers_model("BartForConditionalGeneration", "BartConfig", **NARROW, max_position_embeddings=64)


@entry(TEXT_TO_TEXT, IDS, MASK, TARGET)
def marian() -> nn.Module:
    return transformers_model(
        "MarianMTModel",
        "MarianConfig",
        **NARROW,
        max_position_embeddings=64,
        pad_token_id=98,
        decoder_start_token_id=98,
        scale_embedding=True,
    )
