"""Which programs the console loads for upgrades of pipelines, and how it ends with them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.console.model.pipeline_upgrades import LOADING_S, PipelineUpgrades, UpgradePlan
from odradek.console.pages.pipeline_upgrade import CHANGE_WAIT_S, LOADING_WAIT_S, READING_WAIT_S
from odradek.console.web.gate import RESPONSE_S
from odradek.pipelines import upgrading
from odradek.pipelines.document import PipelineDocument, PipelineVersion
from odradek.pipelines.outline import ProgramKind
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


async def load(upgrades: PipelineUpgrades, file: Path) -> upgrading.NextProgram:
    return await upgrades.program(document(str(file)), str(file), (), by="ann")


async def test_other_code_with_the_same_outline_is_another_plan(
    upgrades: PipelineUpgrades, programs: Path
) -> None:
    file = programs / "copy.py"
    fingerprints = set()
    for text in (PROGRAM, f"{PROGRAM}# other code\n", PROGRAM):
        file.write_text(text)
        program = await load(upgrades, file)
        fingerprints.add(UpgradePlan(name="copy", revision=1, program=program, verdicts=()).fingerprint)
    assert len(fingerprints) == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "import atexit, sys\natexit.register(lambda: sys.stdout.buffer.write(b'\\xff\\n'))",
            "could not be loaded",
        ),
        ("import atexit, sys\natexit.register(lambda: print('[' * 200_000))", "could not be loaded"),
        (
            'import atexit\natexit.register(lambda: print(\'{"outline": {"kind": 7}}\'))',
            "could not be loaded",
        ),
        ("import atexit\natexit.register(lambda: print('7'))", "could not be loaded"),
        ("raise ValueError('x' * 20_000_000)", "ValueError: xxx"),
        ("print('x' * 2_000_000)", "prints more than 1048576 bytes"),
        ("import sys\nsys.stderr.write('x' * 200_000)", "prints more than 65536 bytes"),
    ],
)
async def test_whatever_a_program_prints_it_is_refused_in_one_short_line(
    upgrades: PipelineUpgrades, programs: Path, text: str, line: str
) -> None:
    file = programs / "copy.py"
    file.write_text(f"{text}\n{PROGRAM}")
    refused = await refusal(upgrades, str(file))
    assert line in refused
    assert len(refused) <= 1_000


async def test_bytes_that_are_no_text_before_the_outline_do_no_harm(
    upgrades: PipelineUpgrades, programs: Path
) -> None:
    file = programs / "copy.py"
    file.write_text(
        f"import sys\nsys.stdout.buffer.write(b'\\xff\\n')\nsys.stderr.buffer.write(b'\\xe9')\n{PROGRAM}"
    )
    assert (await load(upgrades, file)).outline.kind is ProgramKind.PYSPARK


async def test_secrets_of_the_console_are_not_in_the_programs_environment(
    upgrades: PipelineUpgrades, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODRADEK_SQL_PASSWORD", "one-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "one-secret")
    file = programs / "copy.py"
    file.write_text("import os\nraise ValueError(sorted(os.environ.items()))\n")
    refused = await refusal(upgrades, str(file))
    assert "ValueError: [" in refused
    assert "one-secret" not in refused


def child_of(mark: Path) -> str:
    """Returns a program that starts a process, and notes the number of that process."""
    return f"""import pathlib, subprocess
child = subprocess.Popen(["sleep", "300"])
pathlib.Path({str(mark)!r}).write_text(str(child.pid))
"""


def number_in(mark: Path) -> str:
    return mark.read_text() if mark.exists() else ""


def lives(process_id: str) -> bool:
    """Tells whether a process is there, and more than its entry."""
    try:
        return not Path("/proc", process_id, "stat").read_text().rpartition(") ")[2].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(mark: Path) -> bool:
    """Waits until the process is gone."""
    for _ in range(200):
        if not lives(number_in(mark)):
            return True
        await asyncio.sleep(0.05)
    return False


async def noted(mark: Path) -> None:
    for _ in range(600):
        if number_in(mark):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the program was not run")


def loading_process(file: Path) -> subprocess.Popen[bytes]:
    loads = "import sys, pathlib\nfrom odradek.pipelines.program_file import outline_of_file\n"
    loads += "outline_of_file(pathlib.Path(sys.argv[1]), [], {})"
    return subprocess.Popen([sys.executable, "-c", loads, str(file)])


async def test_nothing_that_a_program_starts_is_left(
    upgrades: PipelineUpgrades, programs: Path, tmp_path: Path
) -> None:
    mark, file = tmp_path / "mark", programs / "copy.py"
    file.write_text(child_of(mark) + PROGRAM)
    assert (await load(upgrades, file)).outline.kind is ProgramKind.PYSPARK
    assert await gone(mark)


async def test_the_end_of_the_console_ends_a_program_that_hangs(
    upgrades: PipelineUpgrades, programs: Path, tmp_path: Path
) -> None:
    mark, file = tmp_path / "mark", programs / "copy.py"
    file.write_text(f"{child_of(mark)}child.wait()\n{PROGRAM}")
    loading = asyncio.create_task(refusal(upgrades, str(file)))
    await noted(mark)
    upgrades.close()
    assert "was stopped" in await loading
    assert await gone(mark)


async def test_a_program_ends_with_a_console_that_is_killed(programs: Path, tmp_path: Path) -> None:
    mark, file = tmp_path / "mark", programs / "copy.py"
    file.write_text(f"{child_of(mark)}child.wait()\n{PROGRAM}")
    console = loading_process(file)
    await noted(mark)
    console.kill()
    console.wait()
    assert await gone(mark)


def test_the_waits_of_one_request_end_before_the_gate_ends_it() -> None:
    assert 2 * READING_WAIT_S + LOADING_WAIT_S + CHANGE_WAIT_S < RESPONSE_S
    assert LOADING_S < LOADING_WAIT_S
