"""Importers of one zip share its directory, and import as before."""

from __future__ import annotations

import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from odradek.spark.engine.zip_directories import share_zip_directories


def importers_of(path: Path, *prefixes: str) -> list[zipimporter]:
    """The importers of a process whose caches were invalidated after it had begun to import."""
    made = [zipimporter(str(path / prefix)) for prefix in prefixes]
    for importer in made:
        importer.invalidate_caches()
    return made


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "modules.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("first/__init__.py", "")
        file.writestr("first/inner.py", "number = 1")
        file.writestr("second/__init__.py", "number = 2")
    return path


def test_importers_of_one_file_have_one_directory_and_find_what_they_found(archive: Path) -> None:
    root, inner = importers_of(archive, "", "first")
    share_zip_directories([root, inner, object()])
    assert getattr(root, "_files", None) is getattr(inner, "_files", None)
    assert root.find_spec("second") is not None
    assert inner.find_spec("inner") is not None
    assert inner.get_source("inner") == "number = 1"


def test_files_that_differ_keep_their_own_directories(archive: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("third.py", "number = 3")
    share_zip_directories(importers_of(archive, "") + importers_of(other, ""))
    [first], [second] = importers_of(archive, ""), importers_of(other, "")
    assert first.find_spec("third") is None
    assert second.get_source("third") == "number = 3"


def test_a_file_that_was_changed_is_seen_after_the_next_invalidation(archive: Path) -> None:
    root, inner = importers_of(archive, "", "first")
    share_zip_directories([root, inner])
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("first/later.py", "number = 4")
    inner.invalidate_caches()
    share_zip_directories([root, inner])
    assert inner.get_source("later") == "number = 4"
