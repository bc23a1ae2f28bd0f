"""Language models of transformers, and the backbones of KerasHub."""

from __future__ import annotations

from typing import Any

from parity_tests.hub.pairs import pair

SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
HUB: dict[str, Any] = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32, "dropout": 0.0}
IDS = "input_ids -> token_ids: b t=8..16, below 40"
MASK = "attention_mask -> padding_mask: b t, mask"


def named_as_bert(backbone: Any) -> Any:
    """The backbone with the names of transformers' outputs."""
    import keras

    outputs = {
        "last_hidden_state": backbone.output["sequence_output"],
        "pooler_output": backbone.output["pooled_output"],
    }
    return keras.Model(backbone.input, outputs)


@pair("transformers.BertModel", "keras_hub.models.BertBackbone", IDS, MASK,
      "token_type_ids -> segment_ids: b t, below 2")  # fmt: skip
class bert:
    def torch():
        from transformers import BertConfig, BertModel

        return BertModel(BertConfig(vocab_size=40, intermediate_size=32, max_position_embeddings=16, **SIZES))

    def keras():
        from keras_hub.models import BertBackbone

        return named_as_bert(BertBackbone(vocabulary_size=40, max_sequence_length=16, **HUB))


@pair("transformers.BertModel", "keras_hub.models.BertBackbone with the exact GELU", IDS, MASK,
      "token_type_ids -> segment_ids: b t, below 2", table="hub-bert")  # fmt: skip
class bert_exact:
    torch = bert.torch

    def keras():
        import keras
        from keras_hub.models import BertBackbone

        backbone = BertBackbone(vocabulary_size=40, max_sequence_length=16, **HUB)
        for layer in backbone.transformer_layers:
            layer.activation = layer._feedforward_intermediate_dense.activation = keras.activations.gelu
        return named_as_bert(backbone)


@pair("transformers.RobertaModel", "keras_hub.models.RobertaBackbone", IDS, MASK)
class roberta:
    def torch():
        from transformers import RobertaConfig, RobertaModel

        config = RobertaConfig(
            vocab_size=40,
            intermediate_size=32,
            max_position_embeddings=18,
            type_vocab_size=1,
            pad_token_id=1,
            layer_norm_eps=1e-5,
            **SIZES,
        )
        return RobertaModel(config, add_pooling_layer=False)

    def keras():
        from keras_hub.models import RobertaBackbone

        return RobertaBackbone(vocabulary_size=40, max_sequence_length=16, **HUB)


@pair("transformers.DistilBertModel", "keras_hub.models.DistilBertBackbone", IDS, MASK, table="hub-distilbert")
class distil_bert:
    def torch():
        from transformers import DistilBertConfig, DistilBertModel

        return DistilBertModel(
            DistilBertConfig(vocab_size=40, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=16)
        )

    def keras():
        from keras_hub.models import DistilBertBackbone

        return DistilBertBackbone(vocabulary_size=40, max_sequence_length=16, **HUB)


@pair("transformers.GPT2Model", "keras_hub.models.GPT2Backbone", IDS, MASK, table="hub-gpt2")
class gpt2:
    def torch():
        from transformers import GPT2Config, GPT2Model

        return GPT2Model(
            GPT2Config(
                vocab_size=40,
                n_positions=16,
                n_embd=16,
                n_layer=2,
                n_head=2,
                n_inner=32,
                bos_token_id=0,
                eos_token_id=0,
                use_cache=False,
            )
        )

    def keras():
        from keras_hub.models import GPT2Backbone

        return GPT2Backbone(vocabulary_size=40, max_sequence_length=16, **HUB)


@pair("transformers.OPTModel", "keras_hub.models.OPTBackbone", IDS, MASK)
class opt:
    def torch():
        from transformers import OPTConfig, OPTModel

        return OPTModel(
            OPTConfig(
                vocab_size=40, ffn_dim=32, max_position_embeddings=16, word_embed_proj_dim=16, use_cache=False, **SIZES
            )
        )

    def keras():
        from keras_hub.models import OPTBackbone

        return OPTBackbone(vocabulary_size=40, max_sequence_length=16, **HUB)


def from_the_third(backbone: Any, segment: bool) -> Any:
    """A backbone whose positions begin at the third row of the table, and to whose embeddings, if ``segment``, that of
    the only segment is added."""
    import keras
    from keras_hub.layers import TokenAndPositionEmbedding

    class Embeddings(TokenAndPositionEmbedding):
        def build(self, shape: Any) -> None:
            super().build(shape)
            if segment:
                self.segment = self.add_weight(name="segment", shape=(1, self.embedding_dim))

        def call(self, ids: Any) -> Any:
            embedded = super().call(ids, start_index=2)
            return embedded + self.segment if segment else embedded

    def changed(layer: Any) -> Any:
        kind = Embeddings if isinstance(layer, TokenAndPositionEmbedding) else type(layer)
        return kind.from_config(layer.get_config())

    return keras.models.clone_model(keras.Model(backbone.input, backbone.output), clone_function=changed)


@pair(
    "transformers.RobertaModel, without padding",
    "keras_hub.models.RobertaBackbone, changed",
    f"{IDS} from 2",
    MASK,
    table="hub-roberta",
)
class roberta_third:
    torch = roberta.torch

    def keras():
        from keras_hub.models import RobertaBackbone

        return from_the_third(RobertaBackbone(vocabulary_size=40, max_sequence_length=18, **HUB), segment=True)


@pair(
    "transformers.OPTModel, without padding",
    "keras_hub.models.OPTBackbone, changed",
    IDS,
    "attention_mask -> padding_mask: b t, below 2 from 1",
    table="hub-opt",
)
class opt_third:
    torch = opt.torch

    def keras():
        from keras_hub.models import OPTBackbone

        return from_the_third(OPTBackbone(vocabulary_size=40, max_sequence_length=18, **HUB), segment=False)


DECODER: dict[str, Any] = {"vocabulary_size": 40, "num_layers": 2, "num_query_heads": 4, "num_key_value_heads": 2,
                           "hidden_dim": 16}  # fmt: skip


@pair("transformers.LlamaForCausalLM", "keras_hub.models.LlamaCausalLM", IDS, MASK, table="hub-llama")
class llama:
    def torch():
        from transformers import LlamaConfig, LlamaForCausalLM

        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=40,
                hidden_size=16,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=32,
                max_position_embeddings=16,
                rms_norm_eps=1e-6,
                use_cache=False,
            )
        )

    def keras():
        from keras_hub.models import LlamaBackbone, LlamaCausalLM

        return LlamaCausalLM(LlamaBackbone(intermediate_dim=32, layer_norm_epsilon=1e-6, **DECODER))


@pair("transformers.MistralForCausalLM", "keras_hub.models.MistralCausalLM", IDS, MASK, table="hub-mistral")
class mistral:
    def torch():
        from transformers import MistralConfig, MistralForCausalLM

        return MistralForCausalLM(
            MistralConfig(
                vocab_size=40,
                hidden_size=16,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=32,
                max_position_embeddings=16,
                head_dim=4,
                rms_norm_eps=1e-6,
                sliding_window=None,
                use_cache=False,
            )
        )

    def keras():
        from keras_hub.models import MistralBackbone, MistralCausalLM

        return MistralCausalLM(
            MistralBackbone(intermediate_dim=32, layer_norm_epsilon=1e-6, sliding_window=512, **DECODER)
        )


@pair("transformers.GemmaModel", "keras_hub.models.GemmaBackbone", IDS, MASK, table="hub-gemma")
class gemma:
    def torch():
        from transformers import GemmaConfig, GemmaModel

        return GemmaModel(
            GemmaConfig(
                vocab_size=40,
                hidden_size=16,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=32,
                head_dim=8,
                max_position_embeddings=16,
                use_cache=False,
            )
        )

    def keras():
        from keras_hub.models import GemmaBackbone

        return GemmaBackbone(intermediate_dim=64, head_dim=8, **DECODER)


@pair("transformers.Qwen2Model", "keras_hub.models.QwenBackbone", IDS, MASK, table="hub-qwen2")
class qwen2:
    def torch():
        from transformers import Qwen2Config, Qwen2Model

        return Qwen2Model(
            Qwen2Config(
                vocab_size=40,
                hidden_size=16,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=32,
                max_position_embeddings=16,
                rms_norm_eps=1e-6,
                use_cache=False,
            )
        )

    def keras():
        from keras_hub.models import QwenBackbone

        return QwenBackbone(intermediate_dim=32, layer_norm_epsilon=1e-6, **DECODER)
