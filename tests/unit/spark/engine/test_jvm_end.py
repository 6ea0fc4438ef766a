"""A JVM that does not end by itself is killed, and not before its time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="absent: descriptors for processes")
SECONDS = 30


def other_process(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def watched(other: subprocess.Popen[bytes], timeout_s: float) -> subprocess.CompletedProcess[bytes]:
    """By a process that ends, and that holds the pipe which is captured here."""
    program = f"from odradek.spark.engine.jvm_end import kill_later; kill_later({other.pid}, {timeout_s})"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=SECONDS, check=True)


def test_one_that_goes_on_is_killed_after_the_process_that_said_so_has_ended() -> None:
    with other_process("import time; time.sleep(3600)") as other:
        assert watched(other, 0.1).stderr == b""
        assert other.wait(SECONDS) == -signal.SIGKILL


def test_one_that_ends_by_itself_is_let_alone_and_nothing_of_the_caller_is_held() -> None:
    with other_process("import sys; sys.stdin.read()") as other:
        watched(other, 3600)  # returns, though the other one goes on
        assert other.poll() is None
        assert other.stdin is not None
        other.stdin.close()
        assert other.wait(SECONDS) == 0


def test_one_that_is_gone_is_no_error() -> None:
    with other_process("") as other:
        assert other.wait(SECONDS) == 0
    assert watched(other, 0.1).stderr == b""
