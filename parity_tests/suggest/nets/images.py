"""Networks of images: classifiers, a U-Net, an autoencoder, and one that changes their style."""

import torch
from torch import nn
from torch.nn import functional as F


class ONet(nn.Module):
    """A small output network of MTCNN: PReLU, pooling that rounds up, a flatten of width, height, channels."""

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


class Classifier(nn.Module):
    """A convolutional classifier with a squared image: 4 channels, 4 rows, 4 columns before the flatten."""

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


class Block(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Identity()
        if stride != 1 or before != width:
            conv = nn.Conv2d(before, width, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(width))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + self.downsample(x))


class ResNet(nn.Module):
    """A small residual network: strides, shortcuts with a convolution and a norm, an Identity where there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Block(8, 8, 1), Block(8, 8, 1))
        self.layer2 = nn.Sequential(Block(8, 16, 2), Block(16, 16, 1))
        self.layer3 = nn.Sequential(Block(16, 16, 2), Block(16, 16, 1))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Squeeze(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(width, 4, 1)
        self.fc2 = nn.Conv2d(4, width, 1)

    def forward(self, x):
        scale = self.fc2(torch.relu(self.fc1(x.mean((2, 3), keepdim=True))))
        return x * nn.functional.hardsigmoid(scale)


class Inverted(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        hidden = 2 * before
        self.residual = stride == 1 and before == width
        self.expand = nn.Sequential(nn.Conv2d(before, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6())
        conv = nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False)
        self.depthwise = nn.Sequential(conv, nn.BatchNorm2d(hidden), nn.ReLU6())
        self.squeeze = Squeeze(hidden)
        self.project = nn.Sequential(nn.Conv2d(hidden, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        out = self.project(self.squeeze(self.depthwise(self.expand(x))))
        return x + out if self.residual else out


class MobileNet(nn.Module):
    """Depthwise blocks: expand, depthwise, project, with a squeeze and a residual where sizes allow it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        sizes = [(8, 8, 1), (8, 8, 2), (8, 8, 1), (8, 12, 2)]
        self.blocks = nn.ModuleList([Inverted(*each) for each in sizes])
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class Double(nn.Module):
    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.conv_a = nn.Conv2d(before, width, 3, padding=1)
        self.norm_a = nn.GroupNorm(2, width)
        self.conv_b = nn.Conv2d(width, width, 3, padding=1)
        self.norm_b = nn.GroupNorm(2, width)

    def forward(self, x):
        x = F.silu(self.norm_a(self.conv_a(x)))
        return F.silu(self.norm_b(self.conv_b(x)))


class UNet(nn.Module):
    """A U-Net: two levels down and up, skip connections, one transposed convolution and one nearest upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.inc = Double(1, 8)
        self.down1 = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.enc1 = Double(8, 8)
        self.down2 = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.mid = Double(8, 8)
        self.up2 = nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1)
        self.dec2 = Double(16, 8)
        self.up1 = nn.Conv2d(8, 8, 3, padding=1)
        self.dec1 = Double(16, 8)
        self.outc = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.inc(x)
        b = self.enc1(self.down1(a))
        x = self.mid(self.down2(b))
        x = self.dec2(torch.cat([b, self.up2(x)], 1))
        x = self.up1(F.interpolate(x, scale_factor=2, mode="nearest"))
        return self.outc(self.dec1(torch.cat([a, x], 1)))


class Vae(nn.Module):
    """A variational encoder and decoder: a dictionary of outputs, two heads of one shape, (c h w) out of a linear
    layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 4, 2, 1), nn.Conv2d(4, 4, 4, 2, 1)
        self.mean, self.logvar = nn.Linear(64, 6), nn.Linear(64, 6)
        self.expand = nn.Linear(6, 64)
        self.up1, self.up2 = nn.ConvTranspose2d(4, 4, 4, 2, 1), nn.ConvTranspose2d(4, 1, 4, 2, 1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        x = F.leaky_relu(self.conv2(F.leaky_relu(self.conv1(x), 0.2)), 0.2).flatten(1)
        mean, logvar = self.mean(x), self.logvar(x)
        x = torch.relu(self.expand(mean)).view(-1, 4, 4, 4)
        x = torch.relu(self.norm(self.up1(x)))
        return {"mean": mean, "logvar": logvar, "image": torch.sigmoid(self.up2(x))}


class Norms(nn.Module):
    """Norms over groups, over roots of means, over features after a flatten; grouped convolutions; a head unused."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 8, 3, groups=2)
        self.group1 = nn.GroupNorm(4, 8, eps=1e-4)
        self.conv2 = nn.Conv2d(8, 8, 3, groups=4, padding=2, dilation=2)
        self.group2 = nn.GroupNorm(2, 8, eps=1e-4)
        self.pool = nn.AvgPool2d(2)
        self.flat_norm = nn.BatchNorm1d(72)
        self.fc1 = nn.Linear(72, 10)
        self.rms1 = nn.RMSNorm(10, eps=1e-5)
        self.fc2 = nn.Linear(10, 10)
        self.rms2 = nn.RMSNorm(10, eps=1e-5)
        self.fc3 = nn.Linear(10, 4)
        self.plain = nn.LayerNorm(4, elementwise_affine=False)
        self.auxiliary = nn.Linear(72, 4)

    def forward(self, x):
        x = torch.relu(self.group1(self.conv1(x)))
        x = self.pool(torch.relu(self.group2(self.conv2(x))))
        x = self.flat_norm(x.flatten(1))
        x = F.mish(self.rms1(self.fc1(x)))
        x = F.selu(self.rms2(self.fc2(x)))
        return self.plain(self.fc3(x))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.conv1, self.conv2 = nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3)
        self.norm1, self.norm2 = nn.InstanceNorm2d(8, affine=True), nn.InstanceNorm2d(8)
        self.style = nn.Linear(5, 16)

    def forward(self, x, code):
        out = torch.relu(self.norm1(self.conv1(self.pad(x))))
        gamma, beta = self.style(code)[:, :, None, None].chunk(2, 1)
        return x + self.norm2(self.conv2(self.pad(out))) * (1 + gamma) + beta


class Style(nn.Module):
    """Image to image: reflection padding, instance norms, a style that scales them, pixel shuffle, bilinear
    upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 5, padding=2, padding_mode="reflect")
        self.residuals = nn.ModuleList([Residual() for _ in range(2)])
        self.shuffle = nn.Conv2d(8, 16, 3, padding=1)
        self.refine = nn.Conv2d(4, 8, 3, padding=1)
        self.image = nn.Conv2d(8, 3, 1)

    def forward(self, image, code):
        x = F.leaky_relu(self.stem(image), 0.1)
        for residual in self.residuals:
            x = residual(x, code)
        x = F.pixel_shuffle(self.shuffle(x), 2)
        x = F.interpolate(F.elu(self.refine(x)), scale_factor=2, mode="bilinear", align_corners=False)
        return torch.tanh(self.image(x))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 3, 2, 1), nn.Conv2d(6, 6, 3, 2, 1)
        self.fc = nn.Linear(6 * 4 * 4, 12)

    def forward(self, x):
        return self.fc(F.relu(self.conv2(F.relu(self.conv1(x)))).flatten(1))


class Siamese(nn.Module):
    """Modules called more than once: an encoder for two images, and one linear layer applied three times."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.step = nn.Linear(12, 12)
        self.score = nn.Linear(12, 1)

    def forward(self, a, b):
        x = torch.abs(self.encoder(a) - self.encoder(b))
        for _ in range(3):
            x = torch.tanh(self.step(x))
        return self.score(x)


onet, first, resnet, mobilenet, unet, vae, norms, style = ONet, Classifier, ResNet, MobileNet, UNet, Vae, Norms, Style
twice = Siamese
