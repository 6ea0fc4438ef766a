"""Which programs the console loads for upgrades of pipelines, and how it ends with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.console.model.pipeline_upgrades import PipelineUpgrades
from odradek.pipelines.document import PipelineDocument, PipelineVersion
from odradek.pipelines.program_file import WrongProgram

PROGRAM = "def pipeline(spark): pass\n"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    return folder


@pytest.fixture
def upgrades(programs: Path) -> PipelineUpgrades:
    return PipelineUpgrades([str(programs)], "127.0.0.1:1")


def document(program: str) -> PipelineDocument:
    version = PipelineVersion(number=1, program=program, checkpoint="copy/v1", made_ms=1)
    return PipelineDocument(name="copy", versions=(version,))


async def refusal(upgrades: PipelineUpgrades, file: str) -> str:
    with pytest.raises(WrongProgram) as caught:
        await upgrades.program(document(file), file, (), by="ann")
    return str(caught.value)


@pytest.mark.parametrize("file", ["/" + "a/" * 6_000_000, "/\ud800.py"], ids=["long", "surrogate"])
async def test_a_text_that_is_no_path_is_refused_before_any_file_is_looked_at(
    upgrades: PipelineUpgrades, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked_up(path: str) -> str:
        raise AssertionError(f"a path of {len(path)} characters was looked up")

    monkeypatch.setattr(os.path, "realpath", looked_up)
    line = await refusal(upgrades, file)
    assert "is no path" in line
    assert len(line) < 400


@pytest.mark.parametrize(
    "name",
    ["notes.txt", ".git/hooks/hook.py", ".venv/lib/x.py", "jobs/__pycache__/x.py", "shown.py/../notes.txt"],
)
async def test_a_file_that_is_not_offered_is_not_run(
    upgrades: PipelineUpgrades, programs: Path, tmp_path: Path, name: str
) -> None:
    (programs / "shown.py").mkdir()
    file, mark = programs / name, tmp_path / "mark"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"open({str(mark)!r}, 'w')\n{PROGRAM}")
    assert str(file) not in upgrades.files()
    assert "is not offered" in await refusal(upgrades, str(file))
    assert not mark.exists()


async def test_a_link_to_a_folder_offers_nothing_of_a_hidden_one(
    upgrades: PipelineUpgrades, programs: Path
) -> None:
    (programs / ".old").mkdir()
    (programs / ".old" / "copy.py").write_text(PROGRAM)
    (programs / "old").symlink_to(".old")
    assert upgrades.files() == []
    assert "is not offered" in await refusal(upgrades, str(programs / "old" / "copy.py"))


async def test_programs_of_a_config_map_are_loaded(upgrades: PipelineUpgrades, programs: Path) -> None:
    """Kubernetes mounts `copy.py` as a link to `..data/copy.py`, and `..data` as one to a folder with a date."""
    data = programs / "..2026_01_01"
    data.mkdir()
    (data / "copy.py").write_text(PROGRAM)
    (programs / "..data").symlink_to(data.name)
    (programs / "copy.py").symlink_to("..data/copy.py")
    file = str(programs / "copy.py")
    assert upgrades.files() == [file]
    assert (await upgrades.program(document(file), file, (), by="ann")).file == file
