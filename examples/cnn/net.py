"""A small CNN for scikit-learn's digits, images of 8 x 8 pixels."""

from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x):
        hidden = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(hidden)))


class CNN(nn.Module):
    def __init__(self, width=16, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.block = Residual(width)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(2 * width * 4 * 4, classes)

    def forward(self, image):
        x = self.block(F.relu(self.stem(image)))
        x = F.relu(self.down(x)).flatten(1)
        return self.head(self.drop(x))
