"""Settings and options of clients have passwords among them: they are in no `repr` of a class, so in no log of one either."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import odradek
from odradek.sql.queries.channel import StartQuery

_NAMES: Final = frozenset(
    {"options", "passwords", "settings", "client", "client_settings", "admin_settings", "conf", "environment"}
)
_FIELD: Final = re.compile(rf"\b({'|'.join(sorted(_NAMES))})\s*:")
"""Text without a match has no such field: a search is quick, and to parse is not."""
_KINDS: Final = (
    "Mapping[str, str]",
    "Mapping[str, Any]",
    "dict[str, str]",
    "dict[str, Any]",
    "tuple[tuple[str, str], ...]",
)


def _shown(source: str, where: str) -> Iterator[str]:
    """Yields the fields of settings that `repr` of a dataclass shows."""
    if not _FIELD.search(source):
        return
    for group in ast.walk(ast.parse(source)):
        if isinstance(group, ast.ClassDef) and "dataclass" in "".join(map(ast.unparse, group.decorator_list)):
            for field in group.body:
                if (
                    isinstance(field, ast.AnnAssign)
                    and ast.unparse(field.target) in _NAMES
                    and ast.unparse(field.annotation) in _KINDS
                    and "repr=False" not in ast.unparse(field)
                ):
                    yield f"{where}: {group.name}.{ast.unparse(field.target)}"


@pytest.mark.check(47)
def test_no_class_shows_the_settings_of_a_client() -> None:
    root = Path(odradek.__file__).parent
    files = sorted(root.rglob("*.py"))
    shown = [line for file in files for line in _shown(file.read_text("utf-8"), str(file.relative_to(root)))]
    assert shown == []


def test_a_class_that_shows_them_is_found() -> None:
    source = "@dataclass(frozen=True)\nclass Terms:\n    options: Mapping[str, str]\n    name: str"
    assert list(_shown(source, "terms.py")) == ["terms.py: Terms.options"]


@pytest.mark.check(47)
def test_an_order_to_the_engine_does_not_show_a_password() -> None:
    order = StartQuery(
        query_id="Q1",
        name="q",
        build=print,
        servers="broker:9092",
        options={"kafka.sasl.password": "hunter2"},
        checkpoint="",
    )
    assert "hunter2" not in repr(order)
    assert "broker:9092" in repr(order)
