"""A small output network of MTCNN: PReLU, pooling that rounds up, a flatten of width, height, channels."""

from torch import nn


class ONet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1, self.pool1 = nn.Conv2d(3, 8, 3), nn.PReLU(8), nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2, self.prelu2, self.pool2 = nn.Conv2d(8, 12, 3), nn.PReLU(12), nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv3, self.prelu3, self.pool3 = nn.Conv2d(12, 12, 3), nn.PReLU(12), nn.MaxPool2d(2, 2, ceil_mode=True)
        self.conv4, self.prelu4 = nn.Conv2d(12, 16, 2), nn.PReLU(16)
        self.dense5, self.prelu5 = nn.Linear(144, 32), nn.PReLU(32)
        self.dense6_1, self.softmax6_1 = nn.Linear(32, 2), nn.Softmax(dim=1)
        self.dense6_2, self.dense6_3 = nn.Linear(32, 4), nn.Linear(32, 10)

    def forward(self, x):
        x = self.pool1(self.prelu1(self.conv1(x)))
        x = self.pool2(self.prelu2(self.conv2(x)))
        x = self.pool3(self.prelu3(self.conv3(x)))
        x = self.prelu4(self.conv4(x)).permute(0, 3, 2, 1).contiguous()
        x = self.prelu5(self.dense5(x.view(x.shape[0], -1)))
        return self.dense6_2(x), self.dense6_3(x), self.softmax6_1(self.dense6_1(x))


build = ONet
