"""The encoder-decoder with keras.layers.MultiHeadAttention, blocks in lists, and a head that reads the embedding."""

import keras
from keras import layers, ops

WIDTH, HEADS, HIDDEN = 16, 2, 24


def norm():
    return layers.LayerNormalization(epsilon=1e-5)


def gelu(x):
    return ops.gelu(x, approximate=False)


def attention():
    return layers.MultiHeadAttention(HEADS, WIDTH // HEADS)


class Positions(layers.Layer):
    """Adds a learned vector to every token."""

    def __init__(self, length, **given):
        super().__init__(**given)
        self.length = length

    def build(self, shape):
        self.table = self.add_weight(shape=(self.length, shape[-1]), name="table")

    def call(self, x):
        return x + self.table


class EncoderBlock(layers.Layer):
    def __init__(self, **given):
        super().__init__(**given)
        self.attention, self.norm1, self.norm2 = attention(), norm(), norm()
        self.mlp = keras.Sequential([layers.Dense(HIDDEN, activation=gelu), layers.Dense(WIDTH)])

    def call(self, x, keep):
        h = self.norm1(x)
        x = x + self.attention(h, h, attention_mask=keep[:, None, :])
        return x + self.mlp(self.norm2(x))


class DecoderBlock(layers.Layer):
    def __init__(self, **given):
        super().__init__(**given)
        self.attention, self.cross = attention(), attention()
        self.norm1, self.norm2, self.norm3 = norm(), norm(), norm()
        self.up, self.down = layers.Dense(HIDDEN), layers.Dense(WIDTH)

    def call(self, x, memory, keep):
        h = self.norm1(x)
        x = x + self.attention(h, h, use_causal_mask=True)
        h = self.norm2(x)
        x = x + self.cross(h, memory, attention_mask=keep[:, None, :])
        return x + self.down(gelu(self.up(self.norm3(x))))


class Translator(keras.Model):
    def __init__(self, **given):
        super().__init__(**given)
        self.source, self.target = layers.Embedding(30, WIDTH), layers.Embedding(30, WIDTH)
        self.source_position, self.target_position = Positions(9), Positions(7)
        self.encoder = [EncoderBlock() for _ in range(2)]
        self.decoder = [DecoderBlock() for _ in range(2)]
        self.encoder_norm, self.decoder_norm = norm(), norm()

    def call(self, source, target, keep):
        memory = self.source_position(self.source(source))
        for block in self.encoder:
            memory = block(memory, keep)
        memory = self.encoder_norm(memory)
        x = self.target_position(self.target(target))
        for block in self.decoder:
            x = block(x, memory, keep)
        return ops.matmul(self.decoder_norm(x), ops.transpose(self.target.embeddings))


def build():
    return Translator()
