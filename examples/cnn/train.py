"""Train the CNN on scikit-learn's digits: ``python train.py FOLDER``.

The folder gets what a project of your own has: ``cnn.py``, a copy of ``net.py``, and ``cnn.pt``, the trained weights.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from net import CNN
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn import functional as F

BATCH, EPOCHS, RATE = 64, 24, 2e-3


def train(images: torch.Tensor, labels: torch.Tensor, epochs: int) -> CNN:
    """Images (n, 1, 8, 8) from 0 to 1, and labels (n,)."""
    model = CNN()
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    for _ in range(epochs):
        for chosen in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimizer.step()
    return model.eval()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train a small CNN on scikit-learn's digits.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    given = parser.parse_args(arguments)
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images[:, None] / 16.0, dtype=torch.float32)
    seen, held_out, labels, wanted = train_test_split(images, torch.tensor(digits.target), random_state=0)
    model = train(seen, labels, given.epochs)
    with torch.no_grad():
        right = int((model(held_out).argmax(1) == wanted).sum())
    given.folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(__file__).with_name("net.py"), given.folder / "cnn.py")
    torch.save(model.state_dict(), given.folder / "cnn.pt")
    print(f"PyTorch: {right} of {len(wanted)} held-out digits are right ({right / len(wanted):.1%})")  # noqa: T201


if __name__ == "__main__":
    torch.set_num_threads(1)  # the images are small: two threads would wait for each other
    main()
