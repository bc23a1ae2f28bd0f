"""A small voice activity detector: reflect padding, a strided convolution as a transform, an LSTM cell, its state."""

import torch
from torch import nn
from torch.nn import functional as F


class Silero(nn.Module):
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


build = Silero
