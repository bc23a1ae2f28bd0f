"""Like elements of lists are written once, and make the same layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdport.porting.source.comprehensions import with_comprehensions

CLASSES = {"Block": {"dim": "", "rate": "0.5", "shift": "False", "inner": "None"}}
"""The port's own class of the texts, with the defaults of its arguments."""


class Made:
    """Constructors that return their names and arguments; a block states its defaults."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: (self._prefix + name, args, tuple(sorted(kwargs.items())))


def block(dim: object, rate: float = 0.5, shift: bool = False, inner: object = None, name: str = "") -> object:
    return "Block", dim, rate, shift, inner, name


def made(text: str) -> list[object]:
    """What the constructor of a class makes, attribute by attribute."""
    namespace: dict[str, Any] = {"layers": Made("layers."), "keras": Made("keras."), "Block": block}
    exec(text, namespace)
    each = SimpleNamespace()
    namespace["Port"].__init__(each, 16, (3, 5, 7), 3)
    return [(name, value) for name, value in vars(each).items()]


def class_of(*statements: str) -> str:
    lines = "".join(f"        {one}\n" for one in statements)
    return f"class Port:\n    def __init__(self, dim, sizes, kernel_size):\n{lines}"


@pytest.mark.parametrize(("elements", "said"), [
    (['Block(dim=sizes[0], rate=0.25, inner=(kernel_size - 1) * 1, shift=True, name="0")',
      'Block(dim=sizes[1], rate=0.125, inner=(kernel_size - 1) * 2, name="1")',
      'Block(dim=sizes[2], rate=0.0625, inner=(kernel_size - 1) * 4, shift=True, name="2")'],
     "[(sizes[0], 0.25, True, (kernel_size - 1) * 1), (sizes[1], 0.125, False, (kernel_size - 1) * 2),"
     " (sizes[2], 0.0625, True, (kernel_size - 1) * 4)]"),
    ([f'layers.Conv2D(64, 3, dilation_rate={n}, padding="same", use_bias=False, kernel_initializer={"n" * 20!r})'
      for n in (1, 2, 4)], "for dilation_rate in [1, 2, 4]"),
    ([f'layers.Conv2D({16 * n}, 3, strides=2, use_bias=False, activation="relu", name="{n + 5}")' for n in range(6)],
     "for i, filters in enumerate([0, 16, 32, 48, 64, 80], start=5)"),
    ([f'keras.Sequential([Block(dim, rate={n}, inner="{"n" * 20}", name="0"), layers.ReLU(name="1")], name="{n}")'
      for n in range(4)], "for i, rate in enumerate([0, 1, 2, 3])"),
    ([f'Block(dim, rate={n}, inner=(kernel_size - {n}) * -{n}, name="{"n" * 30}")' for n in range(3)],
     "inner=(kernel_size - rate) * -rate"),
    (['Block(dim, rate=0.25, inner="a text of more than twenty letters", name="2")' for _ in range(3)], ""),
    ([f'layers.Dense({n}, name="{n}")' for n in range(3)], ""),
    (['Block(dim, rate=0.25, inner="some words that take space", shift=True)',
      'Block(dim, rate=0.25, inner="some words that take space")',
      'Block(dim, rate=0.25, shift=True, name="a name")'], ""),
])  # fmt: skip
def test_what_differs_is_a_table(elements: list[str], said: str) -> None:
    text = class_of(f"self.parts = [{', '.join(elements)}]")
    written = with_comprehensions(text, CLASSES)
    assert made(written) == made(text)
    assert said in written if said else written == text


@st.composite
def values(draw: st.DrawFn) -> str:
    number = draw(st.integers(-2, 3))
    computed = [f"{number}", f"dim * {number}", f"(kernel_size - {number}) * {number}", f"sizes[{abs(number) % 3}]"]
    return draw(st.sampled_from([*computed, f"({number}, 2)", "dim", "sizes", "kernel_size", '"i"', "True"]))


@st.composite
def elements(draw: st.DrawFn, depth: int = 2) -> list[str]:
    """Elements of a list, some alike, with the names of a ``keras.Sequential`` or without."""
    listed: list[str] = []
    is_named = draw(st.booleans())
    while len(listed) < draw(st.integers(0, 9)):
        arguments = draw(st.lists(st.sampled_from(["rate", "shift", "inner"]), unique=True))
        kind = draw(st.sampled_from(["Block", "layers.Dense", "layers.Conv2D", "keras.Sequential"]))
        inner = draw(elements(depth - 1)) if kind == "keras.Sequential" and depth else []
        for _ in range(draw(st.integers(1, 5))):
            some = [key for key in arguments if draw(st.integers(0, 3))]
            stated = [f"{key}={draw(values())}" for key in some] if kind == "Block" else []
            first = f"[{', '.join(inner)}]" if kind == "keras.Sequential" else draw(values())
            name = f'name="{len(listed) + 1}"' if is_named else ""
            listed.append(f"{kind}({', '.join(filter(None, [first, *stated, name]))})")
    return listed


@given(elements(), elements())
def test_the_same_is_made(first: list[str], second: list[str]) -> None:
    text = class_of(f"self.first = [{', '.join(first)}]", f"self.all = keras.Sequential([{', '.join(second)}])")
    written = with_comprehensions(text, CLASSES)
    assert made(written) == made(text)
