"""Two inputs, two outputs in a nested tuple: a picture and words, a cross attention with a width of its own."""

from torch import nn
from torch.nn import functional as F


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image1, self.image2 = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 8, 1)
        self.words = nn.Embedding(15, 12)
        self.attend = nn.MultiheadAttention(12, 2, kdim=8, vdim=8, batch_first=True)
        self.norm = nn.LayerNorm(12)
        self.left, self.right = nn.Linear(12, 12), nn.Linear(12, 12)
        self.similar = nn.Bilinear(12, 12, 1)

    def forward(self, image, words):
        x = self.image2(F.silu(self.image1(image))).flatten(2).transpose(1, 2)
        q = self.words(words)
        y, _ = self.attend(q, x, x)
        y = self.norm(q + y).mean(1)
        a, b = F.normalize(self.left(y), dim=-1), F.normalize(self.right(y), dim=-1)
        return (a, b), self.similar(a, b)


build = Tower
