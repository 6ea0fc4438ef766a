"""The rule against import cycles finds them, however the imports are written."""

from pathlib import Path

import pytest
from tests.lint.import_cycles import cycles, import_graph


def written(root: Path, **sources: str) -> Path:
    for module, source in sources.items():
        path = root / f"{module.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return root


@pytest.mark.parametrize(
    "back",
    [
        "import room.above",
        "from room import above",
        "from room.above import Name",
        "from . import above",
        "from .above import Name",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from room.above import Name",
        "def late():\n    from room.above import Name",
    ],
)
def test_an_import_back_is_a_cycle(tmp_path: Path, back: str) -> None:
    root = written(tmp_path, room__above="from room.below import value", room__below=back)
    assert cycles(import_graph(root)) == [["room.above", "room.below"]]


def test_a_cycle_through_several_modules_is_one(tmp_path: Path) -> None:
    root = written(tmp_path, a="import b", b="import c", c="import a", d="import a")
    assert cycles(import_graph(root)) == [["a", "b", "c"]]


def test_two_ways_to_one_module_are_no_cycle(tmp_path: Path) -> None:
    root = written(tmp_path, a="import b, c", b="import d", c="import d", d="import json")
    assert cycles(import_graph(root)) == []
