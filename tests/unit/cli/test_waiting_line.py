"""A terminal shows a sign of life while nothing has come; a pipe shows results alone."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import pytest

from odradek.cli.progress import waiting_line
from odradek.sql.shell.session import ShellSession

LIMIT_S = 20


class Screen(io.StringIO):
    """Text, and an event once something is on it."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self.shown = threading.Event()

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        count = super().write(text)
        self.shown.set()
        return count


def test_a_terminal_shows_what_is_waited_for_and_the_line_goes() -> None:
    screen = Screen(is_terminal=True)
    with waiting_line("the first row", screen, first_s=0, every_s=0.001):
        assert screen.shown.wait(LIMIT_S)
        assert "Waiting for the first row" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_the_line_goes_when_the_wait_is_interrupted() -> None:
    screen = Screen(is_terminal=True)

    def interrupted() -> None:
        with waiting_line("a row", screen, first_s=0):
            assert screen.shown.wait(LIMIT_S)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert screen.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize(("is_terminal", "first_s"), [(False, 0), (True, LIMIT_S)])
def test_a_pipe_and_a_short_wait_show_nothing(is_terminal: bool, first_s: float) -> None:
    screen = Screen(is_terminal=is_terminal)
    with waiting_line("the first row", screen, first_s=first_s):
        pass
    assert screen.getvalue() == ""


class SlowQuery:
    """A query whose first row comes only after the screen has shown a sign of life."""

    query_id = None
    columns = (("A", "INTEGER"),)

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __iter__(self) -> Iterator[list[int]]:
        assert self._screen.shown.wait(LIMIT_S), "no sign of life"
        yield [1]
        yield [2]


class SlowServer:
    """Answers after the screen has shown a sign of life."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def query(self, *_: Any, **__: Any) -> SlowQuery:
        self._wait()
        return SlowQuery(self._screen)

    def execute(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        self._wait()
        return []

    def _wait(self) -> None:
        assert self._screen.shown.wait(LIMIT_S), "no sign of life"
        self._screen.shown.clear()


@pytest.mark.parametrize("statement", ["SELECT a FROM t EMIT CHANGES;", "CREATE TABLE t AS SELECT 1;"])
def test_the_shell_shows_a_sign_of_life_until_an_answer_and_the_first_row_have_come(statement: str) -> None:
    screen = Screen(is_terminal=True)
    lines: list[str] = []

    @contextmanager
    def waiting(what: str) -> Iterator[None]:
        shown_before = len(lines)
        with waiting_line(what, screen, first_s=0):
            yield
        assert len(lines) == shown_before, "a line was printed beside the sign of life"

    session = ShellSession(SlowServer(screen), lines.append, waiting=waiting)  # type: ignore[arg-type]
    session.run(statement)
    if statement.startswith("SELECT"):
        assert lines[-1] == "Query Completed, rows: 2"
        assert "Waiting for the first row" in screen.getvalue()
    assert "Waiting for the server's answer" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")
