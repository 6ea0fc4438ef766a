import json
from pathlib import Path

import pytest
from tests.again import main


def run(tmp_path: Path, *, ended: int | None, failed: list[str] | None) -> int:
    for name, value in (
        ("odradek/exit", ended),
        ("cache/lastfailed", failed and dict.fromkeys(failed, True)),
    ):
        if value is not None:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(json.dumps(value))
    return main(["--most", "2"], tmp_path)


def test_few_that_failed_are_named_and_may_be_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, ended=1, failed=["tests/b.py::x", "tests/a.py::y"]) == 0
    assert capsys.readouterr().out.splitlines()[1:3] == ["  tests/a.py::y", "  tests/b.py::x"]


@pytest.mark.parametrize(
    ("ended", "failed", "says"),
    [
        (1, ["a", "b", "c"], "more than 2"),
        (1, [], "is not there"),
        (2, ["a"], "exit code 2"),
        (None, ["a"], "is not there"),
        (3, None, "is not there"),
    ],
)
def test_nothing_else_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ended: int | None, failed: list[str] | None, says: str
) -> None:
    assert run(tmp_path, ended=ended, failed=failed or None) == 1
    assert says in capsys.readouterr().out
