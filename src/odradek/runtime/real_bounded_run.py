"""Runs a process to its end within bounds: of time, and of what it prints. Nothing of its process group outlives it.

It gets the reading end of a pipe, its lifeline, whose number is the last of its words: the pipe closes when
this process ends, for whatever reason. `follow_lifeline` is for the process: it ends its group then.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from odradek.runtime.ports import Clock

_READ_BYTES: Final = 1 << 16
_TICK_S: Final = 0.1
"""The interval of checks whether the process has ended, or must end."""


class OverrunError(Exception):
    """The process exceeded a bound. The text names it, as the end of a sentence about the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBounds:
    """How long a process may run, and what it may print."""

    limit_s: float
    output_bytes_max: int
    errors_bytes_max: int


def run_bounded(
    words: Sequence[str],
    order: bytes,
    environment: Mapping[str, str],
    bounds: RunBounds,
    clock: Clock,
    is_stopped: Callable[[], bool] = lambda: False,
) -> tuple[bytes, bytes]:
    """Returns what the process printed on standard output and standard error. It reads `order` from standard input.

    Raises OverrunError. The process and all that it has started in its group are killed before this returns or raises.
    """
    lifeline, ours = os.pipe()
    try:
        with tempfile.TemporaryFile() as standard_input:  # it has no name, so no other user can open it
            standard_input.write(order)
            standard_input.seek(0)
            process = subprocess.Popen(
                [*words, str(lifeline)],
                stdin=standard_input,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environment),
                pass_fds=(lifeline,),
                start_new_session=True,
            )
        with process:
            try:
                return _printed(process, bounds, clock, is_stopped)
            finally:
                with suppress(ProcessLookupError):  # it is not waited for yet, so the number is still its own
                    os.killpg(process.pid, signal.SIGKILL)
    finally:
        os.close(lifeline)
        os.close(ours)


def _printed(
    process: subprocess.Popen[bytes], bounds: RunBounds, clock: Clock, is_stopped: Callable[[], bool]
) -> tuple[bytes, bytes]:
    assert process.stdout is not None
    assert process.stderr is not None
    end_s = clock.monotonic() + bounds.limit_s
    output, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for pipe, kept, bytes_max in (
            (process.stdout, output, bounds.output_bytes_max),
            (process.stderr, errors, bounds.errors_bytes_max),
        ):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, (kept, bytes_max))
        while True:
            if is_stopped():
                raise OverrunError("was stopped")
            if clock.monotonic() >= end_s:
                raise OverrunError(f"takes more than {bounds.limit_s:g} s")
            has_ended = _has_ended(process.pid)  # before the reading: what it has printed is there then
            ready = selector.select(0 if has_ended else _TICK_S)
            for key, _ in ready:
                kept, bytes_max = key.data
                chunk = os.read(key.fd, _READ_BYTES)
                kept += chunk
                if len(kept) > bytes_max:
                    raise OverrunError(f"prints more than {bytes_max} bytes")
                if not chunk:
                    selector.unregister(key.fileobj)
            if has_ended and not ready:
                return bytes(output), bytes(errors)


def _has_ended(process_id: int) -> bool:
    return os.waitid(os.P_PID, process_id, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def follow_lifeline(descriptor: int) -> None:
    """Kills this process's group when the pipe closes. For a process that `run_bounded` has started."""
    os.set_inheritable(descriptor, False)

    def wait() -> None:
        while os.read(descriptor, 1):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True, name="lifeline").start()
