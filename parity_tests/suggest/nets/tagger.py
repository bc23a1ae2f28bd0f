"""A tagger: two bidirectional LSTM layers over tokens, then a projection."""

from torch import nn


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.rnn = nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(16)
        self.hidden, self.tags = nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, ids):
        x, _ = self.rnn(self.embed(ids))
        return self.tags(nn.functional.gelu(self.hidden(self.norm(x)), approximate="tanh"))


build = Tagger
