"""Run a demonstration, one command after another, with the purpose and duration of each.

`make demo`, `make demo-weather`, `make demo-digits` and `make demo-text` call this. The commands can be copied: they
run in the root of the repository, with `.venv` activated. docs/tutorial.md explains those of `cnn`, and docs/weather.md
those of `weather`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

Step = tuple[str, str]
"""The purpose of a command, and the command."""

CNN: list[Step] = [
    ("Train a small CNN in PyTorch on scikit-learn's digits.", "python examples/cnn/train.py demo/cnn"),
    ("Go to its code, cnn.py, and its weights, cnn.pt.", "cd demo/cnn"),
    (
        "Write the Keras model, move the weights into it, and prove that both models compute the same.",
        "wdport port cnn:CNN --input 'image: b 1 8 8' --checkpoint cnn.pt --force",
    ),
    (
        "Compare the two files layer by layer.",
        "wdport verify cnn.pt cnn.keras --mapping cnn_keras.yaml --html cnn.html",
    ),
    ("Read the held-out digits with Keras alone.", "python ../../examples/cnn/check.py"),
]

WEATHER: list[Step] = [
    ("Train a small diffusion model in PyTorch on a year of hourly weather.", "python examples/weather/train.py demo"),
    (
        "Convert the checkpoint to Keras. The configuration says what its tensors do not; the data gives the units.",
        "wdport convert demo/weather.ckpt --config demo/weather.config.yaml --data examples/weather/newark.csv --force",
    ),
    (
        "Prove that the Keras model computes what the PyTorch model computes, layer by layer.",
        "wdport verify demo/weather.ckpt demo/weather.keras --html demo/weather.html",
    ),
    (
        "Draw 256 new weathers with the Keras model, and a figure of them next to the data.",
        "wdport sample demo/weather.keras -n 256 --sampler ddim --steps 50 -o demo/weather.csv "
        "--plot demo/weather.png --data examples/weather/newark.csv --force",
    ),
    (
        "Compare the samples with weeks that the model never saw.",
        "python examples/weather/check.py demo/weather.csv",
    ),
]

DIGITS: list[Step] = [
    ("Train a small U-Net of diffusers on scikit-learn's digits.", "python examples/digits/train.py demo/digits"),
    ("Convert the folder that diffusers saved to Keras.", "wdport convert demo/digits -o demo/digits.keras --force"),
    ("Prove that the port computes what diffusers computes.", "wdport verify demo/digits demo/digits.keras"),
    (
        "Draw ten of each digit, and how they come to be.",
        "wdport sample demo/digits.keras -n 100 --label 0,1,2,3,4,5,6,7,8,9 --sampler ddim --steps 20 "
        "-o demo/digits.npz --plot demo/digits.png --animate demo/digits.gif --force",
    ),
]

TEXT: list[Step] = [
    ("Train a small EuroBertForMaskedLM of transformers on Python's documentation.",
     "python examples/text/train.py demo/text"),
    ("Convert the folder that transformers saved to Keras; the file keeps its tokenizer.",
     "wdport convert demo/text -o demo/text.keras --force"),
    ("Prove that the port computes what transformers computes.", "wdport verify demo/text demo/text.keras"),
    (
        "Fill gaps of eight tokens in sentences, the most probable token first.",
        "wdport generate demo/text.keras --gap 8 --text 'Deletion of a name removes[MASK] namespace.' "
        "--text 'The \"try\" statement specifies[MASK] for a group of statements.' --animate demo/text.gif --force",
    ),
]  # fmt: skip

STORIES = {"cnn": CNN, "weather": WEATHER, "digits": DIGITS, "text": TEXT}
LOOK_AT = {
    "cnn": {
        "demo/cnn/cnn_keras.py": "the Keras source, with the classes and names of cnn.py: look at this first",
        "demo/cnn/cnn.html": "what verify compared, layer by layer; open it in a browser",
        "demo/cnn/cnn.keras": "the model; keras.saving.load_model reads it after `import cnn_keras`",
    },
    "weather": {
        "demo/weather.png": "real and drawn days side by side: look at this first",
        "demo/weather.html": "what verify compared, layer by layer; open it in a browser",
        "demo/weather.csv": "the samples, a row per hour",
        "demo/weather.keras": "the model; keras.saving.load_model reads it after `import wdport`",
    },
    "digits": {
        "demo/digits.png": "a hundred digits, a column per label: look at this first",
        "demo/digits.gif": "the same, from noise to digits",
        "demo/digits.keras": "the model; keras.saving.load_model reads it after `import wdport`",
    },
    "text": {
        "demo/text.gif": "the gaps after every step: look at this first",
        "demo/text.keras": "the model with its tokenizer; try `wdport generate` with sentences of your own",
    },
}


def say(text: str = "") -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def environment() -> dict[str, str]:
    """This process's environment, with the commands of its own Python first on the path."""
    return {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}


def run(command: str) -> float:
    """Run a command and return the seconds that it took. Exits if the command fails."""
    started = time.monotonic()
    say(f"$ {command}")
    words = shlex.split(command)
    if words[0] == "cd":
        os.chdir(words[1])
        return 0.0
    done = subprocess.run(words, env=environment(), check=False)
    if done.returncode:
        say(f"this command ended with exit code {done.returncode}")
        raise SystemExit(done.returncode if done.returncode > 0 else 1)
    return time.monotonic() - started


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Run a demonstration, one command after another.")
    parser.add_argument("story", choices=STORIES)
    story = parser.parse_args(arguments).story
    steps, total = STORIES[story], 0.0
    for number, (purpose, command) in enumerate(steps, 1):
        say(f"{number} of {len(steps)}: {purpose}")
        seconds = run(command)
        total += seconds
        say(f"({seconds:.0f} s)\n")
    width = max(map(len, LOOK_AT[story]))
    say(f"Done in {total:.0f} s.")
    for name, what in LOOK_AT[story].items():
        say(f"  {name:<{width}}  {what}")


if __name__ == "__main__":
    main()
