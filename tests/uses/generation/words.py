"""A tokenizer of thirty words for the small model."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

WORDS = [
    "<s>", "<pad>", "<mask>", "</s>", "a", "cat", "dog", "sat", "on", "the", "mat", "red", "hat", "ran", "to", "big",
    "old", "tree", "in", "and", "up", "it", "is", "he", "she", "was", "?", "!", "her", ".",
]  # fmt: skip


def tokenizer() -> Tokenizer:
    """Words between spaces; a text stands between ``<s>`` and ``</s>``."""
    assert len(WORDS) == 30
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 3)])
    made.add_special_tokens([AddedToken(word, special=True) for word in ("<s>", "<pad>", "<mask>", "</s>")])
    return made


def with_tokenizer(folder: Path) -> Path:
    """The folder of a model, with a tokenizer in it."""
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder
