"""The tree drawn at the top of base/errors.py is the tree of its classes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bramley.base import errors


def drawn() -> Iterator[tuple[int, str]]:
    tree = (errors.__doc__ or "").split("\n\n")[1]
    for line in tree.splitlines():
        branch = re.match(r"^([│├└─ ]*)(\w+)", line)
        assert branch, line
        yield len(branch[1]) // 4, branch[2]


def real(kind: type[errors.BramleyError], depth: int = 0) -> Iterator[tuple[int, str]]:
    yield depth, kind.__name__
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from real(child, depth + 1)


def test_drawn_tree_equals_the_classes_in_order() -> None:
    assert list(drawn()) == list(real(errors.BramleyError))
