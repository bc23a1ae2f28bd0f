"""Recurrent layers of every kind in a row, time first: two of GRU, a bidirectional GRU, a simple RNN, a GRU cell."""

import torch
from torch import nn


class Speech(nn.Module):
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


build = Speech
