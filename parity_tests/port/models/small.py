"""The networks of ``parity_tests.port.small``."""

from __future__ import annotations

from torch import nn

from parity_tests.port.entries import entry
from parity_tests.port.small import images, sequences, tables

GROUP = "small modules"


@entry(GROUP, "x: b t=24..36 3")
def gru_forecaster() -> nn.Module:
    return sequences.GRUForecaster()


@entry(GROUP, "x: b 3 t=32..48")
def temporal_convolution() -> nn.Module:
    return sequences.TemporalConvNet()


@entry(GROUP, "tokens: b t=12..20, below 50")
def lstm_attention() -> nn.Module:
    return sequences.LSTMAttention()


@entry(GROUP, "samples: b t=40..64, below 32")
def wavenet() -> nn.Module:
    return sequences.WaveNet()


@entry(GROUP, "x: b 48 4")
def dlinear() -> nn.Module:
    return sequences.DLinear()


@entry(GROUP, "idx: b t=12..32, below 40")
def mini_gpt() -> nn.Module:
    return sequences.MiniGPT()


@entry(GROUP, "src: t=7..12 b, below 30")
def seq2seq() -> nn.Module:
    return sequences.Seq2Seq()


@entry(GROUP, "x: b 1 28 28")
def cnn() -> nn.Module:
    return images.Net()


@entry(GROUP, "x: b 1 28 28, from 0 to 1")
def vae() -> nn.Module:
    return images.VAE()


@entry(GROUP, "input: b 16 1 1")
def dcgan_generator() -> nn.Module:
    return images.Generator()


@entry(GROUP, "input: b 3 32 32")
def dcgan_discriminator() -> nn.Module:
    return images.Discriminator()


@entry(GROUP, "x: b 1 h=32..45 w=32..54")
def unet() -> nn.Module:
    return images.UNet()


@entry(GROUP, "input1: b 1 h=24..40 w=24..40", "input2: b 1 h w")
def siamese() -> nn.Module:
    return images.Siamese()


@entry(GROUP, "x: b 3 n=40..64")
def pointnet() -> nn.Module:
    return images.PointNet()


@entry(GROUP, "x_cat: b 3, below 4", "x_cont: b 6")
def mlp() -> nn.Module:
    return tables.TabularMLP()


@entry(GROUP, "x: n=13..19 8", "adj: n n, from 0 to 1")
def graph_convolution() -> nn.Module:
    return tables.GCN()


@entry(GROUP, "x: n=13..19 8", "edge_index: 2 e=30..45, below n")
def graph_sage() -> nn.Module:
    return tables.GraphSAGE()


@entry(GROUP, "x: b t=9..14 16")
def mixture_of_experts() -> nn.Module:
    return tables.MixtureOfExperts()


@entry(GROUP, "x: n=20..33 4, from -1 to 1")
def kan() -> nn.Module:
    return tables.KAN()


@entry(GROUP, "points: n=50..70 3, from -1 to 1")
def fourier_mlp() -> nn.Module:
    return tables.FourierMLP()
