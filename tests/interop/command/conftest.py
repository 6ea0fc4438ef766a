"""Commands run in this process, and what they print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.cli.main import main


@pytest.fixture
def errors() -> list[str]:
    return []


@pytest.fixture
def run(
    bootstrap: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    errors: list[str],
    tmp_path: Path,
) -> Callable[..., str]:
    """Runs one command in this process; it must succeed unless another code is expected. Returns what it printed."""
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", bootstrap)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data-home"))

    def run_command(*words: str, code: int = 0) -> str:
        left = main(words)
        out, error = capfd.readouterr()
        errors[:] = error.splitlines()
        assert left == code, error
        return out

    return run_command
