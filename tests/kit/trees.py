"""Syntax trees of the project's files, for rules that read the same ones: `tests.lint` runs them in one process."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Final

_kept: Final[dict[str, ast.Module | None]] = {}


def keep(texts: Iterable[str]) -> None:
    """Lets `parsed` keep the trees of these texts. A tree takes a hundred times the memory of its text."""
    _kept.update(dict.fromkeys(texts))


def parsed(text: str) -> ast.Module:
    """Returns the tree of a module's text, which no rule changes."""
    tree = _kept.get(text)
    if tree is None:
        tree = ast.parse(text)
        if text in _kept:
            _kept[text] = tree
    return tree
