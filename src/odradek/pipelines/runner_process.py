"""A runner as a process of this machine: its log, its reports, its end.

It leads a process group of its own, with the JVM that it starts in it. It holds one end of a pipe that we write commands to:
when we end, for whatever reason, the pipe closes and the runner ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from odradek.pipelines.reports import LINE_BYTES_MAX, Command, Report, command_line, report_in
from odradek.pipelines.status import LOG_LINE_CHARS_MAX, LOG_LINES_MAX

_READ_BYTES: Final = 1 << 16
_READS_MAX: Final = 16
"""The most reads in a row from one pipe: a process that writes without end delays no other."""

RunnerCommand = Callable[[int, int], Sequence[str]]
"""Returns a command line, given the descriptors of the pipes that the process reads commands from and writes reports to."""


class RunnerProcess:
    """The process that runs a pipeline's program, as its supervisor sees it.

    Used from one thread. OSError when there cannot be a process.
    """

    def __init__(
        self,
        command: RunnerCommand,
        *,
        terms: bytes = b"",
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is added to ours. The process reads `terms` from its standard input: words of a command are no
        place for secrets, since every user of the machine can read them.
        """
        self.log: deque[str] = deque(maxlen=LOG_LINES_MAX)
        """Its last lines, each cut to a bounded length."""
        pipes: list[int] = []
        try:
            theirs_to_read, self._commands = _pipe(pipes)
            self._reports, theirs_to_write = _pipe(pipes)
            self._output, output = _pipe(pipes)
            with tempfile.TemporaryFile() as standard_input:  # it has no name, so no other user can open it
                standard_input.write(terms)
                standard_input.seek(0)
                self._process = subprocess.Popen(
                    command(theirs_to_read, theirs_to_write),
                    stdin=standard_input,
                    stdout=output,
                    stderr=output,
                    pass_fds=(theirs_to_read, theirs_to_write),
                    start_new_session=True,
                    cwd=directory,
                    env={**os.environ, **(environment or {})},
                )
        except BaseException:
            for descriptor in pipes:
                os.close(descriptor)
            raise
        for descriptor in (theirs_to_read, theirs_to_write, output):
            os.close(descriptor)
        for descriptor in (self._commands, self._reports, self._output):
            os.set_blocking(descriptor, False)
        self._log_lines = _Lines(self._output, LOG_LINE_CHARS_MAX)
        self._report_lines = _Lines(self._reports, LINE_BYTES_MAX)
        self._is_closed = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: Command) -> None:
        """Sends a command. Does nothing when the process has ended, or reads no more: `stopping_max_s` covers that."""
        with suppress(BrokenPipeError, BlockingIOError):
            os.write(self._commands, command_line(command))

    def kill(self) -> None:
        """Kills the process by SIGKILL, with the processes that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def reports(self) -> list[Report]:
        """Returns the reports since the last call. Reads its log, too."""
        for line in self._log_lines.read():
            self.log.append(line.decode("utf-8", "replace").rstrip()[:LOG_LINE_CHARS_MAX])
        return [report for line in self._report_lines.read() if (report := report_in(line)) is not None]

    def end(self) -> int | None:
        """Returns the process's exit code, negative for a signal; None while it lives. What it left running in its group is
        killed then."""
        code = self._process.poll()
        if code is not None:
            self.kill()
        return code

    def close(self) -> None:
        """Closes the pipes once the process has ended. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            for descriptor in (self._commands, self._reports, self._output):
                os.close(descriptor)


def _pipe(pipes: list[int]) -> tuple[int, int]:
    ends = os.pipe()
    pipes += ends
    return ends


class _Lines:
    """Lines of a pipe that does not block. Of a line that is much longer than `length_max`, a part is lost."""

    def __init__(self, descriptor: int, length_max: int) -> None:
        self._descriptor = descriptor
        self._length_max = length_max
        self._rest = b""

    def read(self) -> Iterator[bytes]:
        """Yields the lines that are complete. At the end of the pipe also what is left."""
        for _ in range(_READS_MAX):
            try:
                chunk = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                if self._rest:
                    yield self._rest
                    self._rest = b""
                return
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            yield from lines
            self._rest = self._rest[: self._length_max]


def reason_of_end(code: int, log: Sequence[str]) -> str:
    """Returns one line for a process that reported nothing else: how it ended, and its last line."""
    if code < 0:
        with suppress(ValueError):
            how = f"it was ended by {signal.Signals(-code).name}"
            return _with_last_line(how, log)
    return _with_last_line(f"it ended with code {code}", log)


def _with_last_line(how: str, log: Sequence[str]) -> str:
    last = next((line for line in reversed(log) if line.strip()), None)
    return how if last is None else f"{how}: {last.strip()}"
