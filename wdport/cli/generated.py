"""The outputs of `wdport generate`: files, text, and the JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wdport.cli.options import facts, size
from wdport.files.target import Target, file_target

if TYPE_CHECKING:  # imports jax
    from wdport.cli.results import GeneratedDocument
    from wdport.files.json_document import NamedFile, OutputFile
    from wdport.generation import Generated

FORMATS: Final = (".txt", ".json", ".npz")

NOTHING: Final = -1
"""Behind the end of a shorter text, in an array."""


@dataclass(frozen=True)
class Done:
    """Completed texts, the settings that they were made with, and the file that was written; ``prompts`` is their
    file."""

    model: str
    prompts: NamedFile | None
    found: Generated
    settings: Mapping[str, Any]
    seconds: float
    target: Target | None

    @property
    def texts(self) -> list[str] | None:
        """The texts; None without a tokenizer."""
        return None if self.found.words is None else self.found.texts

    def frames(self, index: int, mask: int) -> list[str]:
        """One text after every step, in words or as numbers."""
        words = self.found.words
        show = words.frame if words is not None else lambda tokens: " ".join(map(str, tokens))
        return [show(frame) for frame in self.found.frames(index, mask)]

    def document(self) -> GeneratedDocument:
        """The result as a document."""
        from wdport.files.json_document import output_file

        return self.content(None if self.target is None else output_file(self.target.path))

    def content(self, output: OutputFile | None) -> GeneratedDocument:
        """The document, with these facts about the output."""
        from wdport.cli.results import GeneratedDocument, GeneratedText

        found, texts = self.found, self.texts
        return GeneratedDocument(
            model=self.model,
            prompts=self.prompts,
            output=output,
            texts=[
                GeneratedText(tokens.tolist(), steps.tolist(), None if texts is None else texts[at])
                for at, (tokens, steps) in enumerate(zip(found.tokens, found.steps, strict=True))
            ],
            generated=found.wanted,
            network_calls=found.calls,
            **self.settings,
            seconds=round(self.seconds, 3),
        )

    def lines(self) -> list[str]:
        """One line per text; without a tokenizer its tokens."""
        texts = self.texts
        if texts is None:
            return [" ".join(map(str, tokens)) for tokens in self.found.tokens]
        return [" ".join(text.split("\n")) for text in texts]

    def text(self) -> str:
        """The texts, or a short summary if they are in a file."""
        if self.target is None:
            return "\n".join(self.lines())
        count = len(self.found)
        rows = [
            ("generated", f"{self.found.wanted} tokens by {self.found.calls} network calls"),
            ("took", f"{self.seconds:.1f} s"),
            ("wrote", f"{self.target.path} ({size(self.target.path.stat().st_size)})"),
        ]
        return f"{self.model}: {count} text{'' if count == 1 else 's'}\n{facts(rows)}"


def output_target(path: Path, inputs: Mapping[str, Path], force: bool) -> Target:
    """The target of texts; raises an error if it cannot be written."""
    return file_target(path, FORMATS, inputs, force)


def write_texts(target: Target, done: Done) -> None:
    """Write the texts: a line each, the document, or arrays (n, N) padded with -1."""
    from wdport.cli.documents import rendered
    from wdport.files.atomic import write_text
    from wdport.files.sealed_archive import sealed_archive

    if target.format == "txt":
        write_text(target.output, "\n".join(done.lines()) + "\n")
    elif target.format == "json":
        write_text(target.output, rendered("generated", done.content(None)) + "\n")
    else:
        import numpy as np

        lengths = np.array([len(each) for each in done.found.tokens], np.int32)
        arrays = {"tokens": done.found.tokens, "steps": done.found.steps}
        shape = (len(lengths), int(lengths.max()))
        padded: dict[str, Any] = {name: np.full(shape, NOTHING, np.int32) for name in arrays}
        for name, values in arrays.items():
            for row, each in enumerate(values):
                padded[name][row, : len(each)] = each
        with sealed_archive(target.output) as file:
            np.savez(file, **padded, lengths=lengths)
