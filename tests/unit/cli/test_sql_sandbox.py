"""`odradek sql --sandbox` on a terminal: keys do what people expect, and nothing is left of it, however it ends."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.kit.waiting import eventually

_WAIT_S = 120.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()=>][0-9A-Z]?|\x1b\][^\x07]*\x07")
_QUESTION = b"\x1b[6n"


class Terminal:
    """What a person at a terminal sees and types."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def see(self, wanted: str) -> str:
        """All up to the wanted text, which is a regular expression. AssertionError if it does not come."""
        ends_at = time.monotonic() + _WAIT_S
        while (match := re.search(wanted, self._seen)) is None:
            readable, _, _ = select.select([self._master], [], [], max(0.0, ends_at - time.monotonic()))
            assert readable, f"no {wanted!r} came after: {self._seen[-1500:]!r}"
            content = os.read(self._master, 65536)
            if _QUESTION in content:
                os.write(self._master, b"\x1b[1;1R")  # the place of the cursor, as a terminal answers
            self._seen += _ESCAPES.sub("", content.decode(errors="replace"))
        seen, self._seen = self._seen[: match.end()], self._seen[match.end() :]
        return seen


@contextmanager
def sandbox(directory: Path) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (40, 100))
    environment = {
        **os.environ,
        "TMPDIR": str(directory),
        "HOME": str(directory),
        "TERM": "xterm",
        "COLUMNS": "100",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "odradek.cli.main", "sql", "--sandbox"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: _take_terminal(slave),
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        os.close(master)


def _take_terminal(slave: int) -> None:
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


def left_behind(directory: Path) -> list[str]:
    """Files, and processes that name the directory in their command or environment."""
    left = [str(path) for path in directory.glob("odradek-*")]
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            text = command.read_bytes()
            if str(directory).encode() in text:
                left.append(text.replace(b"\0", b" ").decode(errors="replace"))
    return left


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
def test_keys_of_the_shell_and_what_is_left_when_it_is_killed(tmp_path: Path) -> None:
    with sandbox(tmp_path) as terminal:
        terminal.see("Type help for help")
        terminal.see("ksql>")
        terminal.type("\\?\r")
        terminal.see("Statements end with a semicolon")
        terminal.see("ksql>")
        terminal.type("SHOW STR\t")
        terminal.see("EAMS")  # completion comes from a thread
        terminal.type(";\r")
        terminal.see(r"FLIGHTS +\| flights")
        terminal.see(r"Time: \d")
        terminal.see("ksql>")
        terminal.type("SELECT flight, seats FROM flights EMIT CHANGES;\r")
        terminal.see(r"FLIGHT +\| +SEATS")
        terminal.see(r"\| +\d+\r?\n")
        terminal.type("\x03")
        terminal.see("Query terminated")
        terminal.see("ksql>")
        terminal.type("INSERT INTO airports VALUES ('BER', 'Berlin', 'Germany');\r")
        terminal.see("ksql>")
        terminal.type("PRINT 'airports' FROM BEGINNING LIMIT 7;\r")
        terminal.see(r"rowtime: [^\n]*, key: BER, value: [^\n]*, partition: 0\r?\n")
        terminal.see("ksql>")
        assert left_behind(tmp_path)
        terminal.process.send_signal(signal.SIGKILL)
        terminal.process.wait()
        eventually(lambda: left_behind(tmp_path), holds=lambda left: left == [], seconds=_WAIT_S, every_s=0.1)
