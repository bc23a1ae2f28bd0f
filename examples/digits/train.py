"""Train a diffusers ``UNet2DModel`` on scikit-learn's digits and save it as a folder: ``python train.py unet``.

The 1,797 digits are 8 x 8 pixels from 0 to 16. The network learns the noise of 1000 steps, and ten classes by label.
"""

from __future__ import annotations

import argparse

import torch
from diffusers import DDPMScheduler, UNet2DModel
from sklearn.datasets import load_digits

BATCH, STEPS, RATE = 64, 1000, 2e-3


def build() -> UNet2DModel:
    return UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        attention_head_dim=16,
        num_class_embeds=10,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8.0 - 1.0
    labels = torch.tensor(digits.target)
    scheduler = DDPMScheduler(num_train_timesteps=1000, beta_schedule="squaredcos_cap_v2")
    model = build()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.995))
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    total = 0.0
    for step in range(1, given.steps + 1):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, step / 100, 2.0 * (1.0 - step / given.steps))
        chosen = torch.randint(len(images), (BATCH,))
        noise, t = torch.randn(BATCH, 1, 8, 8), torch.randint(1000, (BATCH,))
        noisy = scheduler.add_noise(images[chosen], noise, t)
        loss = torch.nn.functional.mse_loss(model(noisy, t, labels[chosen]).sample, noise)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update_parameters(model)
        total += float(loss.detach())
        if step % 200 == 0:
            print(f"step {step}, loss {total / 200:.4f}", flush=True)  # noqa: T201
            total = 0.0
    average.module.save_pretrained(given.folder)
    scheduler.save_pretrained(given.folder)


if __name__ == "__main__":
    torch.set_num_threads(1)  # two threads wait for each other at every operation while another process uses a core
    main()
