"""What an engine has on disk while it lives, and what the next one removes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from odradek.sql.queries.scratch import EngineScratch, remove_abandoned

_ENGINE = """
import signal, sys
from pathlib import Path
from odradek.sql.queries.scratch import EngineScratch
print(EngineScratch(Path(sys.argv[1])).directory("push"), flush=True)
signal.pause()
"""


def test_a_killed_engine_s_directory_is_removed_by_the_next_one_and_a_living_one_s_stays(
    tmp_path: Path,
) -> None:
    ours = EngineScratch(tmp_path)
    words = [sys.executable, "-c", _ENGINE, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        try:
            assert remove_abandoned(tmp_path) == []
            assert left.is_dir()
        finally:
            other.send_signal(signal.SIGKILL)
            other.wait()
        assert left.is_dir()
        next_one = EngineScratch(tmp_path)
    assert not left.exists()
    assert ours.path.is_dir()
    ours.close()
    next_one.close()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_no_engine_made_stays(tmp_path: Path) -> None:
    (tmp_path / "odradek-sql-notes").mkdir()
    EngineScratch(tmp_path).close()
    assert [path.name for path in tmp_path.iterdir()] == ["odradek-sql-notes"]
