"""What each sample of the benchmarks starts from."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psutil
import pytest
from benchmarks import measures


def test_a_sample_starts_with_as_much_memory_at_hand_as_it_will_fill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system's counters say how much was written; the file itself is gone. The client fills memory, too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(measures, "CLIENT_BYTES", 1 << 20)
    written_bytes = (3 << 20) + 5
    before = psutil.Process().io_counters().write_chars
    assert measures.settle(written_bytes) == written_bytes + (1 << 20)
    assert psutil.Process().io_counters().write_chars - before >= written_bytes + (1 << 20)
    assert list(tmp_path.iterdir()) == []


def test_a_sample_that_writes_nothing_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = psutil.Process().io_counters().write_chars
    assert measures.settle() == 0
    assert psutil.Process().io_counters().write_chars - before < 1 << 20
