"""The rule against import cycles finds them, however the imports are written."""

from pathlib import Path

import pytest
from tests.lint.import_cycles import (
    cycles,
    folder_ties,
    import_graph,
    lines_about,
)


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


def test_subfolders_that_import_each_other_are_a_cycle_though_no_module_imports_itself(
    tmp_path: Path,
) -> None:
    root = written(
        tmp_path,
        room__upper__a="from room.lower import c",
        room__lower__c="",
        room__lower__d="from room.upper.b import Name",
        room__upper__b="from room import file",
        room__file="from room.lower import c",
    )
    graph = import_graph(root)
    assert cycles(graph) == []
    assert folder_ties(graph) == {
        "room": {
            ("room.upper", "room.lower"): [("room.upper.a", "room.lower.c")],
            ("room.lower", "room.upper"): [("room.lower.d", "room.upper.b")],
            ("room.upper", "room.*"): [("room.upper.b", "room.file")],
            ("room.*", "room.lower"): [("room.file", "room.lower.c")],
        }
    }


@pytest.mark.parametrize("below", ["from room import file", "from room.file import Name", "import room"])
def test_files_of_a_room_count_as_one_folder_beside_its_subfolders(tmp_path: Path, below: str) -> None:
    root = written(
        tmp_path,
        room__file="",
        room__user="from room.lower.a import Name",
        room__lower__a=below,
    )
    (root / "room" / "__init__.py").touch()
    graph = import_graph(root)
    assert cycles(graph) == []
    assert {folder: [*arrows] for folder, arrows in folder_ties(graph).items()} == {
        "room": [("room.lower", "room.*"), ("room.*", "room.lower")]
    }


def test_files_that_are_above_or_below_all_subfolders_are_no_cycle(tmp_path: Path) -> None:
    root = written(
        tmp_path,
        room__top="from room.lower.a import Name",
        room__other="from room.top import Name",
        room__lower__a="from room.lower.b import Name",
        room__lower__b="",
    )
    assert folder_ties(import_graph(root)) == {}


def test_a_cycle_of_three_deep_subfolders_is_found_and_files_of_the_room_are_one_more(
    tmp_path: Path,
) -> None:
    root = written(
        tmp_path,
        house__room__a__deep__x="from house.room.b import y",
        house__room__b__y="from house.room.c.z import Name",
        house__room__c__z="def late():\n    from house.room.a.deep import w",
        house__room__a__deep__w="from house.room import plain",
        house__room__plain="from house.room.b import y",
        house__other__o="from house.room import plain",
    )
    ties = folder_ties(import_graph(root))
    assert {folder: len(arrows) for folder, arrows in ties.items()} == {"house.room": 5}


def test_a_line_names_each_arrow_and_an_import_of_it() -> None:
    ties = {
        "room": {
            ("room.a", "room.b"): [("room.a.x", "room.b.y"), ("room.a.w", "room.b.y")],
            ("room.b", "room.a"): [("room.b.y", "room.a.z")],
        }
    }
    assert lines_about({}) == []
    assert lines_about(ties) == [
        "room: 2 arrows tie subfolders in cycles: move what both sides need below them, or declare a Protocol",
        "  room.b -> room.a: 1 imports, such as room.b.y -> room.a.z",
        "  room.a -> room.b: 2 imports, such as room.a.x -> room.b.y",
    ]
