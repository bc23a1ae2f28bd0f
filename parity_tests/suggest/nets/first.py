"""A convolutional classifier with a squared image: 4 channels, 4 rows, 4 columns before the flatten."""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2),
            nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.PReLU(),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 7))

    def forward(self, x):
        return torch.log_softmax(self.classifier(self.features(x)), -1)


build = Classifier
