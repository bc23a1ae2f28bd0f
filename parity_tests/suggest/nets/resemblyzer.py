"""A small speaker encoder: three LSTM layers, the last hidden state, and two parameters of its training loss."""

import torch
from torch import nn


class VoiceEncoder(nn.Module):
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


build = VoiceEncoder
