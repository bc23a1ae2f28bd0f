"""Networks of sound, words and series: convolutions over time, recurrent layers, sums over steps."""

import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

EPS = 0.0010000000474974513


class Crepe(nn.Module):
    """A small CREPE: (k, 1) convolutions, ReLU before batch normalisation, a permute before the flatten."""

    def __init__(self) -> None:
        super().__init__()
        widths = [1, 16, 4, 4, 4, 8, 16]
        for n in range(1, 7):
            first = n == 1
            conv = nn.Conv2d(widths[n - 1], widths[n], (64 if first else 16, 1), (4 if first else 1, 1))
            setattr(self, f"conv{n}", conv)
            setattr(self, f"conv{n}_BN", nn.BatchNorm2d(widths[n], eps=EPS, momentum=0.0))
        self.classifier = nn.Linear(32, 24)

    def layer(self, x, conv, norm, padding):
        x = norm(F.relu(conv(F.pad(x, padding))))
        return F.max_pool2d(x, (2, 1), (2, 1))

    def forward(self, x):
        x = x[:, None, :, None]
        x = self.layer(x, self.conv1, self.conv1_BN, (0, 0, 30, 30))
        x = self.layer(x, self.conv2, self.conv2_BN, (0, 0, 7, 8))
        x = self.layer(x, self.conv3, self.conv3_BN, (0, 0, 7, 8))
        x = self.layer(x, self.conv4, self.conv4_BN, (0, 0, 7, 8))
        x = self.layer(x, self.conv5, self.conv5_BN, (0, 0, 7, 8))
        x = self.layer(x, self.conv6, self.conv6_BN, (0, 0, 7, 8))
        return torch.sigmoid(self.classifier(x.permute(0, 2, 1, 3).reshape(-1, 32)))


class VoiceEncoder(nn.Module):
    """A small speaker encoder: three LSTM layers, the last hidden state, and two parameters of its training loss."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(10, 20, 3, batch_first=True)
        self.linear = nn.Linear(20, 20)
        self.relu = nn.ReLU()
        self.similarity_weight = nn.Parameter(torch.tensor([10.0]))
        self.similarity_bias = nn.Parameter(torch.tensor([-5.0]))

    def forward(self, mels):
        _, (hidden, _) = self.lstm(mels)
        raw = self.relu(self.linear(hidden[-1]))
        return raw / torch.norm(raw, dim=1, keepdim=True)


class Silero(nn.Module):
    """A small voice activity detector: reflect padding, a strided convolution as a transform, an LSTM cell, its
    state."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 66, 64, stride=32, bias=False)
        self.conv1 = nn.Conv1d(33, 16, 3, padding=1)
        self.conv2 = nn.Conv1d(16, 12, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(12, 12, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(12, 16, 3, padding=1)
        self.lstm_cell = nn.LSTMCell(16, 16)
        self.final_conv = nn.Conv1d(16, 1, 1)

    def forward(self, x):
        x = self.stft_conv(F.pad(x, (0, 16), "reflect").unsqueeze(1))
        x = torch.sqrt(x[:, :33] ** 2 + x[:, 33:] ** 2)
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = F.relu(self.conv4(F.relu(self.conv3(x)))).squeeze(-1)
        zero = torch.zeros_like(x)
        h, c = self.lstm_cell(x, (zero, zero))
        x = torch.sigmoid(self.final_conv(F.relu(h).unsqueeze(-1)))
        return x.squeeze(1).mean(1, keepdim=True), torch.stack([h, c])


class Speech(nn.Module):
    """Recurrent layers of every kind in a row, time first: two of GRU, a bidirectional GRU, a simple RNN, a GRU
    cell."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 8, 2)
        self.both = nn.GRU(8, 4, bidirectional=True)
        self.plain = nn.RNN(8, 8)
        self.cell = nn.GRUCell(8, 8)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        x, _ = self.gru(x.transpose(0, 1))
        x, _ = self.both(x)
        x, _ = self.plain(x)
        h = torch.zeros_like(x[0])
        for step in (0, 1):
            h = self.cell(x[step], h)
        return self.out(torch.cat([h, x[-1]], 1))


class Tagger(nn.Module):
    """A tagger: two bidirectional LSTM layers over tokens, then a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.rnn = nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(16)
        self.hidden, self.tags = nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, ids):
        x, _ = self.rnn(self.embed(ids))
        return self.tags(nn.functional.gelu(self.hidden(self.norm(x)), approximate="tanh"))


class ConvolutionBatchNorm(nn.Module):
    def __init__(self, channels: int, filters: int, size: int, dilation: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, filters, size, dilation=dilation, padding=size // 2 * dilation)
        self.bn = nn.BatchNorm1d(filters)

    def forward(self, x):
        return self.bn(self.conv(x))


class Attacut(nn.Module):
    """AttaCut's network: two embeddings with a padding index, three dilated convolutions, the largest of them."""

    def __init__(self) -> None:
        super().__init__()
        self.ch_embeddings = nn.Embedding(30, 8, padding_idx=0)
        self.sy_embeddings = nn.Embedding(30, 8, padding_idx=0)
        self.dropout = nn.Dropout(0.1)
        self.conv1 = ConvolutionBatchNorm(16, 16, 3)
        self.conv2 = ConvolutionBatchNorm(16, 16, 5, dilation=3)
        self.conv3 = ConvolutionBatchNorm(16, 16, 9, dilation=2)
        self.linear1 = nn.Linear(16, 16)
        self.linear2 = nn.Linear(16, 1)

    def forward(self, ids):
        x = torch.cat((self.ch_embeddings(ids[:, 0]), self.sy_embeddings(ids[:, 1])), dim=2).permute(0, 2, 1)
        found = [self.dropout(conv(x).permute(0, 2, 1)) for conv in (self.conv1, self.conv2, self.conv3)]
        x, _ = torch.max(torch.stack(found, 3), 3)
        return self.linear2(F.relu(self.linear1(x))).squeeze(-1)


def old(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(module)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList([old(nn.Conv1d(8, 8, 3, padding=d, dilation=d)) for d in (1, 3)])
        self.convs2 = nn.ModuleList([old(nn.Conv1d(8, 8, 3, padding=1)) for _ in range(2)])

    def forward(self, x):
        for first, second in zip(self.convs1, self.convs2, strict=True):
            x = x + second(F.leaky_relu(first(F.leaky_relu(x, 0.1)), 0.1))
        return x


class Vocoder(nn.Module):
    """A small vocoder: weight norm in both forms, dilated and transposed convolutions, leaky ReLU, gates."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_pre = parametrizations.weight_norm(nn.Conv1d(10, 8, 7, padding=3))
        self.up = old(nn.ConvTranspose1d(8, 8, 4, stride=2, padding=1))
        self.residual = Residual()
        self.gate = parametrizations.weight_norm(nn.Linear(8, 8))
        self.value = parametrizations.weight_norm(nn.Linear(8, 8))
        self.conv_post = old(nn.Conv1d(8, 1, 7, padding=3))

    def forward(self, mel):
        x = self.residual(self.up(F.leaky_relu(self.conv_pre(mel), 0.1))).transpose(1, 2)
        x = torch.tanh(self.value(x)) * torch.sigmoid(self.gate(x))
        return torch.tanh(self.conv_post(F.leaky_relu(x).transpose(1, 2)))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(12), nn.LayerNorm(12)
        self.token1, self.token2 = nn.Conv1d(12, 12, 1), nn.Conv1d(12, 12, 1)
        self.channel1, self.channel2 = nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, x):
        x = x + self.token2(F.gelu(self.token1(self.norm1(x))))
        return x + self.channel2(F.gelu(self.channel1(self.norm2(x))))


class Pointwise(nn.Module):
    """Linear layers that are convolutions of window one on the other side, and the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(5, 12)
        self.mixers = nn.ModuleList([Mixer() for _ in range(2)])
        self.out = nn.Conv1d(12, 3, 1)

    def forward(self, x):
        x = self.stem(x)
        for mixer in self.mixers:
            x = mixer(x)
        return self.out(x.transpose(1, 2)).amax(-1)


class Whole(nn.Module):
    """Whole numbers that are no tokens: lengths that mask a mean, a class as one of many, a step as sines."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.exp(-torch.arange(4) * 1.5))
        self.time1, self.time2 = nn.Linear(8, 12), nn.Linear(12, 12)
        self.label = nn.Linear(5, 12)
        self.series = nn.Linear(3, 12)
        self.mix1, self.mix2 = nn.Linear(12, 12), nn.Linear(12, 12)
        self.out = nn.Linear(12, 2)

    def forward(self, x, length, label, step):
        angles = step[:, None].to(x.dtype) * self.frequencies
        time = self.time2(F.silu(self.time1(torch.cat([angles.sin(), angles.cos()], 1))))
        kind = self.label(F.one_hot(label, 5).to(x.dtype) * 0.9 + 0.02)
        h = F.elu(self.series(x))
        keep = (torch.arange(x.shape[1], device=x.device)[None] <= length[:, None]).to(x.dtype)
        mean = (h * keep[:, :, None]).sum(1) / keep.sum(1, keepdim=True)
        h = F.softplus(self.mix1(mean + time)) * torch.sigmoid(self.mix2(mean + kind))
        return self.out(h)


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 10), nn.Linear(10, 6)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Branches(nn.Module):
    """Two branches of one shape that are added: either order is the same function."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha, self.beta = Branch(), Branch()
        self.norm = nn.LayerNorm(6)
        self.out = nn.Linear(6, 6)

    def forward(self, x):
        x = self.norm(x)
        return self.out(torch.relu(self.alpha(x) + self.beta(x)))


class Difference(Branches):
    """Two branches of one shape that are subtracted: which is which matters."""

    def forward(self, x):
        x = self.norm(x)
        return self.out(torch.relu(self.alpha(x) - self.beta(x)))


crepe, resemblyzer, silero, speech, tagger, attacut = Crepe, VoiceEncoder, Silero, Speech, Tagger, Attacut
vocoder, pointwise, whole, add, subtract = Vocoder, Pointwise, Whole, Branches, Difference
