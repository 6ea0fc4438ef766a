"""Signs of life on standard error: a progress bar, and a line that names what the command waits for."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from rich import console
    from rich import progress as rich_progress
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID
else:
    console = lazy("rich.console")
    rich_progress = lazy("rich.progress")

_REFRESH_S: Final = 0.1
_COUNT_BETWEEN_LOOKS: Final = 256
"""Looking at the clock for every record would cost more than the record."""


class Progress:
    """Counts records and bytes, and redraws the bar now and then."""

    def __init__(self, bar: RichProgress, task: TaskID) -> None:
        self._bar = bar
        self._task = task
        self._records = 0
        self._bytes = 0
        self._drawn_at = time.monotonic()
        self._started_at = self._drawn_at

    def counting(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yields the same lines, and counts each as one record when it is read."""
        for line in lines:
            self._records += 1
            self._bytes += len(line)
            if self._records % _COUNT_BETWEEN_LOOKS == 0 and time.monotonic() - self._drawn_at >= _REFRESH_S:
                self.draw()
            yield line

    def draw(self) -> None:
        now = self._drawn_at = time.monotonic()
        rate = self._records / max(now - self._started_at, 1e-9)
        self._bar.update(self._task, completed=self._bytes, records=f"{self._records:,}", rate=f"{rate:,.0f}")


@contextmanager
def progress_bar(title: str, total_bytes: int | None) -> Iterator[Progress]:
    """Yields a bar that fills up to `total_bytes`; one that only moves where the total is not known."""

    bar = rich_progress.Progress(
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        rich_progress.DownloadColumn(),
        rich_progress.TextColumn("{task.fields[records]} records, {task.fields[rate]}/s"),
        console=console.Console(stderr=True),
        transient=True,
    )
    with bar:
        progress = Progress(bar, bar.add_task(title, total=total_bytes, records="0", rate="0"))
        yield progress
        progress.draw()


@contextmanager
def waiting_line(
    what: str, stream: IO[str] | None = None, *, first_s: float = 1.0, every_s: float = 1.0
) -> Iterator[None]:
    """A terminal shows what the block waits for, and how long it has, once that takes a second. The line goes at the end.

    Nothing else may be printed in the block. A file or a pipe gets nothing.
    """
    target = sys.stderr if stream is None else stream
    if not target.isatty():
        yield
        return
    over = threading.Event()
    thread = threading.Thread(
        target=_show_waiting, args=(what, target, over, first_s, every_s), name="waiting-line", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show_waiting(what: str, stream: IO[str], over: threading.Event, first_s: float, every_s: float) -> None:
    began_at = time.monotonic()
    pause_s, is_shown = first_s, False
    while not over.wait(pause_s):
        text = f"Waiting for {what}: {time.monotonic() - began_at:.0f} s so far. Ctrl-C ends it."
        stream.write("\r" + text[: shutil.get_terminal_size().columns - 1])
        stream.flush()
        pause_s, is_shown = every_s, True
    if is_shown:
        stream.write("\r\x1b[K")
        stream.flush()
