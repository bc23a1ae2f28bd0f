"""AttaCut's network: two embeddings with a padding index, three dilated convolutions, the largest of them."""

import torch
from torch import nn
from torch.nn import functional as F


class ConvolutionBatchNorm(nn.Module):
    def __init__(self, channels: int, filters: int, size: int, dilation: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, filters, size, dilation=dilation, padding=size // 2 * dilation)
        self.bn = nn.BatchNorm1d(filters)

    def forward(self, x):
        return self.bn(self.conv(x))


class Attacut(nn.Module):
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


build = Attacut
