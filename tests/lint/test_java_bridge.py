"""Only one room touches PySpark's bridge to Java: `spark/engine`, which gives the others what they need."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src"
BRIDGE = frozenset({"_gateway", "_jc", "_jdf", "_jq", "_jsc", "_jsparkSession", "_jsq"})
"""Attributes of PySpark's objects. `_jvm` is one only of sessions and contexts."""
NAMES = (*BRIDGE, "_jvm")
HOLDERS = frozenset({"spark", "sparkContext", "sparkSession", "SparkContext", "session", "context"})


def touched(text: str) -> Iterator[str]:
    """Yields each access as it is written."""
    if not any(name in text for name in NAMES):  # a search is quick, and to parse is not
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Attribute):
            continue
        if node.attr in BRIDGE or (node.attr == "_jvm" and _name(node.value) in HOLDERS):
            yield ast.unparse(node)


def _name(node: ast.expr) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def test_no_other_room_touches_the_bridge() -> None:
    paths = [path for path in SOURCES.rglob("*.py") if "spark/engine" not in path.as_posix()]
    assert len(paths) > 500
    accesses = {
        path.relative_to(SOURCES).as_posix(): lines
        for path in paths
        if (lines := list(touched(path.read_text("utf-8"))))
    }
    assert accesses == {}


@pytest.mark.parametrize(
    ("text", "accesses"),
    [
        ("spark.sparkContext._jvm.java", ["spark.sparkContext._jvm"]),
        ("rows.sparkSession._jvm", ["rows.sparkSession._jvm"]),
        ("query._jsq.lastProgress()", ["query._jsq"]),
        ("self._jvm", []),
    ],
)
def test_the_check_sees_accesses(text: str, accesses: list[str]) -> None:
    assert list(touched(text)) == accesses
