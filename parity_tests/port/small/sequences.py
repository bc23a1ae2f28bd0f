"""Networks that read sequences: forecasts, classifiers, a language model and a translator."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm


class GRUForecaster(nn.Module):
    """The next ``horizon`` steps of all features from the last hidden state of a GRU."""

    def __init__(self, n_features=3, hidden_size=32, num_layers=2, horizon=6, dropout=0.1):
        super().__init__()
        self.horizon = horizon
        self.n_features = n_features
        self.gru = nn.GRU(n_features, hidden_size, num_layers, batch_first=True, dropout=dropout)
        self.fc = nn.Linear(hidden_size, horizon * n_features)

    def forward(self, x):
        last = x[:, -1:, :]
        out, _ = self.gru(x - last)
        out = self.fc(out[:, -1, :])
        return out.view(x.size(0), self.horizon, self.n_features) + last


class Chomp1d(nn.Module):
    def __init__(self, chomp_size):
        super().__init__()
        self.chomp_size = chomp_size

    def forward(self, x):
        return x[:, :, : -self.chomp_size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, n_inputs, n_outputs, kernel_size, stride, dilation, padding, dropout=0.2):
        super().__init__()
        self.conv1 = weight_norm(
            nn.Conv1d(n_inputs, n_outputs, kernel_size, stride=stride, padding=padding, dilation=dilation)
        )
        self.chomp1 = Chomp1d(padding)
        self.relu1 = nn.ReLU()
        self.dropout1 = nn.Dropout(dropout)

        self.conv2 = weight_norm(
            nn.Conv1d(n_outputs, n_outputs, kernel_size, stride=stride, padding=padding, dilation=dilation)
        )
        self.chomp2 = Chomp1d(padding)
        self.relu2 = nn.ReLU()
        self.dropout2 = nn.Dropout(dropout)

        self.net = nn.Sequential(
            self.conv1, self.chomp1, self.relu1, self.dropout1, self.conv2, self.chomp2, self.relu2, self.dropout2
        )
        self.downsample = nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None
        self.relu = nn.ReLU()

    def forward(self, x):
        out = self.net(x)
        res = x if self.downsample is None else self.downsample(x)
        return self.relu(out + res)


class TemporalConvNet(nn.Module):
    """Bai et al., arXiv:1803.01271, with a linear layer on the last step."""

    def __init__(self, num_inputs=3, num_channels=(16, 16, 24), kernel_size=3, dropout=0.2, num_classes=5):
        super().__init__()
        layers = []
        num_levels = len(num_channels)
        for i in range(num_levels):
            dilation_size = 2**i
            in_channels = num_inputs if i == 0 else num_channels[i - 1]
            out_channels = num_channels[i]
            layers += [
                TemporalBlock(
                    in_channels, out_channels, kernel_size, stride=1, dilation=dilation_size,
                    padding=(kernel_size - 1) * dilation_size, dropout=dropout,
                )
            ]  # fmt: skip
        self.network = nn.Sequential(*layers)
        self.linear = nn.Linear(num_channels[-1], num_classes)

    def forward(self, x):
        y = self.network(x)
        return F.log_softmax(self.linear(y[:, :, -1]), dim=1)


class Attention(nn.Module):
    """Additive attention over the steps of a sequence."""

    def __init__(self, hidden_dim):
        super().__init__()
        self.proj = nn.Linear(hidden_dim, hidden_dim)
        self.context = nn.Parameter(torch.randn(hidden_dim) * 0.1)

    def forward(self, outputs, mask):
        scores = torch.tanh(self.proj(outputs)).matmul(self.context)
        scores = scores.masked_fill(~mask, -1e9)
        weights = F.softmax(scores, dim=1)
        return torch.bmm(weights.unsqueeze(1), outputs).squeeze(1), weights


class LSTMAttention(nn.Module):
    """A classifier of texts that returns where it looked."""

    def __init__(self, vocab_size=50, embed_dim=16, hidden_dim=24, num_classes=4):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=0)
        self.lstm = nn.LSTM(embed_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.attention = Attention(2 * hidden_dim)
        self.dropout = nn.Dropout(0.3)
        self.classifier = nn.Linear(2 * hidden_dim, num_classes)

    def forward(self, tokens):
        mask = tokens != 0
        outputs, (hidden, _) = self.lstm(self.embedding(tokens))
        context, weights = self.attention(outputs, mask)
        final = torch.cat((hidden[-2], hidden[-1]), dim=1)
        return self.classifier(self.dropout(context + final)), weights


class CausalConv1d(nn.Conv1d):
    def __init__(self, in_channels, out_channels, kernel_size, dilation=1, bias=True):
        super().__init__(in_channels, out_channels, kernel_size, dilation=dilation, bias=bias)
        self.left = (kernel_size - 1) * dilation

    def forward(self, x):
        return super().forward(F.pad(x, (self.left, 0)))


class WaveNet(nn.Module):
    """Gated, dilated, causal convolutions with skip connections; van den Oord et al., arXiv:1609.03499."""

    def __init__(self, classes=32, residual=16, skip=24, layers=4, blocks=2):
        super().__init__()
        self.embed = nn.Embedding(classes, residual)
        self.dilations = [2**i for _ in range(blocks) for i in range(layers)]
        self.filters = nn.ModuleList([CausalConv1d(residual, residual, 2, d) for d in self.dilations])
        self.gates = nn.ModuleList([CausalConv1d(residual, residual, 2, d) for d in self.dilations])
        self.residuals = nn.ModuleList([nn.Conv1d(residual, residual, 1) for _ in self.dilations])
        self.skips = nn.ModuleList([nn.Conv1d(residual, skip, 1) for _ in self.dilations])
        self.out1 = nn.Conv1d(skip, skip, 1)
        self.out2 = nn.Conv1d(skip, classes, 1)

    def forward(self, samples):
        x = self.embed(samples).transpose(1, 2)
        total = 0
        for filt, gate, res, skip in zip(self.filters, self.gates, self.residuals, self.skips):
            z = torch.tanh(filt(x)) * torch.sigmoid(gate(x))
            total = total + skip(z)
            x = res(z) + x
        return self.out2(F.relu(self.out1(F.relu(total))))


class moving_avg(nn.Module):
    def __init__(self, kernel_size, stride):
        super().__init__()
        self.kernel_size = kernel_size
        self.avg = nn.AvgPool1d(kernel_size=kernel_size, stride=stride, padding=0)

    def forward(self, x):
        front = x[:, 0:1, :].repeat(1, (self.kernel_size - 1) // 2, 1)
        end = x[:, -1:, :].repeat(1, (self.kernel_size - 1) // 2, 1)
        x = torch.cat([front, x, end], dim=1)
        x = self.avg(x.permute(0, 2, 1))
        return x.permute(0, 2, 1)


class DLinear(nn.Module):
    """Trend and remainder, each with a linear map over time; Zeng et al., arXiv:2205.13504."""

    def __init__(self, seq_len=48, pred_len=24, channels=4, individual=True, kernel_size=25):
        super().__init__()
        self.pred_len = pred_len
        self.channels = channels
        self.individual = individual
        self.decomposition = moving_avg(kernel_size, stride=1)
        if individual:
            self.seasonal = nn.ModuleList([nn.Linear(seq_len, pred_len) for _ in range(channels)])
            self.trend = nn.ModuleList([nn.Linear(seq_len, pred_len) for _ in range(channels)])
        else:
            self.seasonal = nn.Linear(seq_len, pred_len)
            self.trend = nn.Linear(seq_len, pred_len)

    def forward(self, x):
        trend = self.decomposition(x)
        seasonal = (x - trend).permute(0, 2, 1)
        trend = trend.permute(0, 2, 1)
        if self.individual:
            seasonal_out = torch.zeros([x.size(0), self.channels, self.pred_len], dtype=x.dtype, device=x.device)
            trend_out = torch.zeros([x.size(0), self.channels, self.pred_len], dtype=x.dtype, device=x.device)
            for i in range(self.channels):
                seasonal_out[:, i, :] = self.seasonal[i](seasonal[:, i, :])
                trend_out[:, i, :] = self.trend[i](trend[:, i, :])
        else:
            seasonal_out = self.seasonal(seasonal)
            trend_out = self.trend(trend)
        return (seasonal_out + trend_out).permute(0, 2, 1)


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        assert n_embd % n_head == 0
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.n_head = n_head
        self.n_embd = n_embd
        self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class Block(nn.Module):
    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention(n_embd, n_head, block_size)
        self.ln_2 = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x


class MiniGPT(nn.Module):
    """A character model with a tied head."""

    def __init__(self, vocab_size=40, block_size=32, n_layer=3, n_head=4, n_embd=32):
        super().__init__()
        self.block_size = block_size
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(vocab_size, n_embd),
                wpe=nn.Embedding(block_size, n_embd),
                drop=nn.Dropout(0.1),
                h=nn.ModuleList([Block(n_embd, n_head, block_size) for _ in range(n_layer)]),
                ln_f=nn.LayerNorm(n_embd),
            )
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx):
        b, t = idx.size()
        assert t <= self.block_size, f"cannot forward sequence of length {t}, block size is only {self.block_size}"
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


class Encoder(nn.Module):
    def __init__(self, vocab_size, emb_dim, hid_dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, emb_dim)
        self.rnn = nn.GRU(emb_dim, hid_dim)

    def forward(self, src):
        return self.rnn(self.embedding(src))


class Decoder(nn.Module):
    def __init__(self, vocab_size, emb_dim, hid_dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, emb_dim)
        self.attn = nn.Linear(2 * hid_dim, hid_dim)
        self.v = nn.Linear(hid_dim, 1, bias=False)
        self.cell = nn.GRUCell(emb_dim + hid_dim, hid_dim)
        self.out = nn.Linear(hid_dim, vocab_size)

    def forward(self, token, hidden, encoder_outputs):
        src_len = encoder_outputs.shape[0]
        repeated = hidden.unsqueeze(0).repeat(src_len, 1, 1)
        energy = torch.tanh(self.attn(torch.cat((repeated, encoder_outputs), dim=2)))
        weights = torch.softmax(self.v(energy).squeeze(2), dim=0)
        context = torch.einsum("sb,sbh->bh", weights, encoder_outputs)
        hidden = self.cell(torch.cat((self.embedding(token), context), dim=1), hidden)
        return self.out(hidden), hidden


class Seq2Seq(nn.Module):
    """A translator that feeds its most likely token back, for ``max_len`` steps; sequences are time first."""

    def __init__(self, src_vocab=30, trg_vocab=25, emb_dim=12, hid_dim=20, max_len=4):
        super().__init__()
        self.encoder = Encoder(src_vocab, emb_dim, hid_dim)
        self.decoder = Decoder(trg_vocab, emb_dim, hid_dim)
        self.max_len = max_len

    def forward(self, src):
        encoder_outputs, hidden = self.encoder(src)
        hidden = hidden.squeeze(0)
        token = torch.zeros(src.shape[1], dtype=torch.long, device=src.device)
        outputs = []
        for _ in range(self.max_len):
            output, hidden = self.decoder(token, hidden, encoder_outputs)
            outputs.append(output)
            token = output.argmax(1)
        return torch.stack(outputs)
