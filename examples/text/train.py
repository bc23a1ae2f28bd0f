"""Train a EuroBertForMaskedLM of about a million parameters on Python's own documentation: ``python train.py lm``.

The text is that of ``help()``: chapters of the language reference in the package ``pydoc_data``, which every Python
has, under the PSF licence. Code and grammar are left out. Single tokens and whole spans are masked, so that the network
learns to fill gaps. Saves the folder that transformers would save, with a byte-pair tokenizer trained on the same text.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from pydoc_data.topics import topics

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import EuroBertConfig, EuroBertForMaskedLM

WORDS, STEPS, RATE, TOKENS = 1024, 1500, 3e-3, 1024
LENGTHS = (16, 24, 32, 48)
SPAN = 8
"""Tokens of a hidden span at most."""

NEIGHBOURS, SHARPNESS, THETA = (-2, -1, 1, 2), 1.5, 1000.0
SUBJECTS = ("assert", "break", "continue", "del", "for", "global", "if", "nonlocal", "pass", "raise", "return", "try",
            "while", "with")  # fmt: skip
"""Chapters, few enough to be learnt in a minute or two."""

SPECIAL = ["[PAD]", "[MASK]", "[END]"]
PAD, MASK, END = range(3)


def paragraphs() -> list[str]:
    """The prose: paragraphs of whole sentences, one line each."""
    blocks = [block for name in SUBJECTS for block in topics.get(name, "").split("\n\n")]
    joined = [" ".join(block.split()) for block in blocks if "::=" not in block and ">>>" not in block]
    return [text for text in dict.fromkeys(joined) if re.match(r"[A-Z]", text) and re.search(r"[.:]$", text)]


def train_tokenizer(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=WORDS, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def build() -> EuroBertForMaskedLM:
    """The network, whose heads begin by reading the two tokens before and the two tokens after: found from
    random weights, that takes longer than the whole of this training."""
    config = EuroBertConfig(
        vocab_size=WORDS, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, attention_bias=True, tie_word_embeddings=True, pad_token_id=PAD, mask_token_id=MASK,
        bos_token_id=None, eos_token_id=END, initializer_range=128**-0.5,
        rope_parameters={"rope_theta": THETA, "rope_type": "default"},
    )  # fmt: skip
    model = EuroBertForMaskedLM(config)
    angles = THETA ** (-torch.arange(0, 32, 2) / 32)
    key = torch.cat([torch.ones(16), torch.zeros(16)])
    queries = [torch.cat([(angles * away).cos(), (angles * away).sin()]) for away in NEIGHBOURS]
    for layer in model.model.layers:
        layer.self_attn.k_proj.bias.data = SHARPNESS * key.repeat(2)
        layer.self_attn.q_proj.bias.data = SHARPNESS * torch.cat(queries)
    return model


def batch(stream: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Windows of the text (B, N) and which of their tokens are hidden (B, N)."""
    length = LENGTHS[int(torch.randint(len(LENGTHS), ()))]
    count = TOKENS // length
    starts = torch.randint(len(stream) - length, (count, 1))
    tokens = stream[starts + torch.arange(length)]
    single = torch.rand(count, length) < 0.1 + 0.3 * torch.rand(count, 1)
    size = torch.randint(1, SPAN + 1, (count, 1))
    first = (torch.rand(count, 1) * (length - size + 1)).long()
    span = (torch.arange(length) >= first) & (torch.arange(length) < first + size)
    return tokens, torch.where(torch.rand(count, 1) < 0.5, single, span)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args(arguments)
    torch.manual_seed(0)
    texts = paragraphs()
    tokenizer = train_tokenizer(texts)
    stream = torch.tensor([token for text in texts for token in (*tokenizer.encode(text).ids, END)])
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.05, betas=(0.9, 0.98))
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(texts)} paragraphs, {len(stream)} tokens, {count / 1e6:.2f} million parameters", flush=True)
    total = 0.0
    for step in range(1, given.steps + 1):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, step / 50, 1.25 * (1.0 - step / (given.steps + 1)))
        tokens, hidden = batch(stream)
        features = model.model(tokens.masked_fill(hidden, MASK)).last_hidden_state
        loss = torch.nn.functional.cross_entropy(model.lm_head(features[hidden]), tokens[hidden])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += float(loss.detach())
        if step % 100 == 0:
            print(f"step {step}, loss {total / 100:.3f}", flush=True)
            total = 0.0
    model.save_pretrained(given.folder)
    tokenizer.save(str(Path(given.folder) / "tokenizer.json"))


if __name__ == "__main__":
    torch.set_num_threads(1)  # two threads wait for each other at every operation while another process uses a core
    main()
