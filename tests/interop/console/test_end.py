"""Ctrl-C ends the console at once, and says nothing, while pages of it are open."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.kit.commands import RunningCommand

from odradek import Admin, NewTopic
from odradek.console.pages.records import TAIL_PATH
from odradek.testing import LocalBroker

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with LocalBroker() as broker:
        with Admin(broker.address) as admin:
            admin.create_topics([NewTopic("watched", 1, 1)])
        yield broker.address


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
@pytest.mark.parametrize("path", ["/live", f"{TAIL_PATH}?topic=watched"])
def test_an_open_page_holds_up_no_end(
    bootstrap: str, path: str, number: signal.Signals, tmp_path: Path
) -> None:
    log_file = tmp_path / "log"
    words = ("console", "--bootstrap", bootstrap, "--listen", "127.0.0.1:0")
    with RunningCommand(*words, log_file=log_file) as console:
        address = urlsplit(console.address)
        with socket.create_connection((address.hostname, address.port), timeout=PATIENCE_S) as browser:
            browser.sendall(f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
            seen = b""
            while b"retry:" not in seen:
                more = browser.recv(4096)
                assert more, seen
                seen += more
            assert b"text/event-stream" in seen
            console.process.send_signal(number)
            while more := browser.recv(4096):
                seen += more
            assert seen.endswith(b"0\r\n\r\n"), "the stream ends as a response does"
        code = console.process.wait(PATIENCE_S)
    errors = log_file.read_text()
    assert (code, errors.count("\n")) == (0, 1), errors
    assert "Ctrl-C ends it" in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
@pytest.mark.parametrize("served", ["console", "table"])
def test_who_ends_it_as_soon_as_it_is_ready_ends_it_as_at_any_time(
    bootstrap: str, served: str, number: signal.Signals, tmp_path: Path
) -> None:
    words = {"console": ("console",), "table": ("table", "serve", "watched")}[served]
    with RunningCommand(
        *words, "--bootstrap", bootstrap, "--listen", "127.0.0.1:0", log_file=tmp_path / "log"
    ) as command:
        assert command.address
        command.process.send_signal(number)
        assert command.process.wait(PATIENCE_S) == 0, (tmp_path / "log").read_text()
