"""A user's model that prints while it is imported, built and run, as the public classes do."""

from __future__ import annotations

from typing import Any

from tests import user_model

print("imported")


class Net(user_model.Net):
    """The same network, with its dimensions told."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        print("built")
        super().__init__(*arguments, **more)

    def forward(self, x: Any, t: Any) -> Any:
        print("ran")
        return super().forward(x, t)


def two_levels() -> Net:
    return Net((5, 5), 3, 16, 2, 1, 8, cross=False)
