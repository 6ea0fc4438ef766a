"""Draws the pictures of docs/incidents.md: `make screenshots`, or `python -m tests.interop.console.incident_pictures NAME…`.

Each script of `examples/incidents` makes its incident, as a user would run it. A console shows the page that finds it; then
the script's commands are run, and what they print becomes the second picture.
"""

from __future__ import annotations

import html
import os
import re
import selectors
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from playwright.sync_api import Browser, sync_playwright
from tests.interop.console.conftest import CHROMIUM, console_process
from tests.interop.console.screenshots import save, shot

EXAMPLES: Final = Path(__file__).parents[3] / "examples" / "incidents"
SILENCE_S: Final = 600.0
SHOWS_MS: Final = 120_000
WIDTH: Final = 1180
LINES_MAX: Final = 60
_HAPPENED: Final = "if it lasts.\n"
_PROMPT: Final = "(Enter runs it)"
_OVER: Final = "\nIt is over"
_STYLE: Final = (
    "body{margin:0;background:#12161b}pre{margin:0;padding:18px 22px;color:#e3e8ee;"
    "font:13px/1.45 'DejaVu Sans Mono',monospace;white-space:pre-wrap;overflow-wrap:anywhere;"
    "display:inline-block;min-width:700px}b{color:#8fbcea}"
)


class IncidentPicture(NamedTuple):
    """The page of the console that finds an incident, and the text on it that shows that it is found.

    `part` is a selector of what else is to be on the picture.
    """

    path: str
    text: str
    height: int = 760
    part: str = "main"


PICTURES: Final = {
    "group_behind": IncidentPicture("/group?id=billing", "does not keep up", 1030, ".chart svg"),
    "disk_fills": IncidentPicture("/", "is nearly full", 1220, "#sizes svg"),
    "broker_died": IncidentPicture(
        "/", "Broker 2 is dead", 905, "body:has(#disks table):has(#mended .time-line li)"
    ),
    "partition_offline": IncidentPicture(
        "/", "Partitions without a leader", 945, "body:has(#disks table):has(.broker-dead)"
    ),
    "slow_produce": IncidentPicture("/traffic/slow", "Produce v", 820),
    "hanging_transaction": IncidentPicture(
        "/group?id=statements", "An open transaction hides", 900, ".chart svg"
    ),
    "hot_partition": IncidentPicture(
        "/topics/clicks/records?from=last&value=1000", "Most frequent keys", 640
    ),
    "client_floods": IncidentPicture("/traffic", "Floods", 560),
    "ending_certificate": IncidentPicture("/people/certificates", "Ends soon", 620),
    "failing_pipeline": IncidentPicture("/pipelines/pipeline?name=totals", "times in a row", 805),
}


class IncidentScript:
    """A script of `examples/incidents` that runs, and waits for Enter between its steps."""

    def __init__(self, directory: Path, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(directory / f"{name}.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.output = ""

    def wait_until_it_happened(self) -> None:
        while _HAPPENED not in self.output:
            self._read()

    def commands(self) -> str:
        """Presses Enter until it is over; returns the commands and what they printed."""
        assert self._process.stdin is not None
        self.output = self.output.partition(_HAPPENED)[2]
        pressed = 0
        while _OVER not in self.output:
            if self.output.count(_PROMPT) > pressed:
                self._process.stdin.write(b"\n")
                self._process.stdin.flush()
                pressed += 1
            else:
                self._read()
        return self.output.partition(_OVER)[0].replace(_PROMPT, "")

    def _read(self) -> None:
        """Reads what is printed next. Raises TimeoutError, or RuntimeError if it has ended."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            if not waiting.select(SILENCE_S):
                raise TimeoutError(f"nothing more was printed within {SILENCE_S:g} s:\n{self.output}")
        piece = os.read(self._process.stdout.fileno(), 65_536)
        if not piece:
            raise RuntimeError(f"it ended too soon:\n{self.output}")
        self.output += piece.decode()

    def close(self) -> None:
        """Ends it, with its brokers: there is nothing left to type."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended
            self._process.stdin.write(b"\n")
            self._process.stdin.close()
        try:
            self._process.wait(60.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def running_script(name: str) -> Iterator[IncidentScript]:
    """Runs a copy of the script in a temporary directory: its path is on the pictures."""
    with tempfile.TemporaryDirectory(prefix="incidents-") as directory:
        copied = shutil.copytree(EXAMPLES, Path(directory) / "examples")
        with _run(copied, name) as script:
            yield script


@contextmanager
def _run(directory: Path, name: str) -> Iterator[IncidentScript]:
    script = IncidentScript(directory, name)
    try:
        script.wait_until_it_happened()
        yield script
    finally:
        script.close()


def draw(browser: Browser, name: str) -> None:
    """Writes both pictures of an incident."""
    picture = PICTURES[name]
    with running_script(name) as script:
        words = script.output.partition("odradek console ")[2].splitlines()[0].split()
        with console_process(*words) as address:
            page = browser.new_page(viewport={"width": WIDTH, "height": picture.height}, locale="en-US")
            page.goto(address + picture.path)
            page.get_by_text(picture.text).first.wait_for(timeout=SHOWS_MS)
            page.locator(picture.part).first.wait_for(timeout=SHOWS_MS)
            save(shot(page, picture.height), f"incidents/{name}")
            page.close()
        draw_terminal(browser, name, script.commands())


def draw_terminal(browser: Browser, name: str, text: str) -> None:
    """Writes the picture of what a terminal shows: commands in bold."""
    lines = text.strip("\n").splitlines()
    shown = [
        f"<b>$ {html.escape(line.strip())}</b>" if line.startswith("  odradek ") else html.escape(line)
        for line in lines
    ]
    body = re.sub("\n{3,}", "\n\n", "\n".join(shown[:LINES_MAX]))
    page = browser.new_page(viewport={"width": WIDTH, "height": 600})
    page.set_content(f"<style>{_STYLE}</style><pre>{body}</pre>")
    save(page.locator("pre").screenshot(), f"incidents/{name}-command")
    page.close()


def main() -> None:
    names = sys.argv[1:] or list(PICTURES)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name in names:
            draw(browser, name)
        browser.close()


if __name__ == "__main__":
    main()
