"""Dry runs of upgrades in the console: which programs the operator offers, and what they would read and write.

An upgrade loads the program, which is code. So only files below the directories of `--programs` are loaded, in a process of
their own, one at a time for all users: the user decides which version follows, the operator which code there is.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.pipelines import upgrading
from odradek.pipelines.document import PipelineDocument
from odradek.pipelines.program_file import (
    FileOutline,
    ProgramSources,
    WrongProgram,
    is_within,
    program_outline,
)
from odradek.pipelines.store import PipelineConflict, PipelineStore
from odradek.pipelines.upgrade import ModeVerdict, UpgradeMode
from odradek.runtime.real_clock import SystemClock
from odradek.telemetry import events

_log = events.get("console")

FILES_MAX: Final = 500
"""The programs that a page offers."""
_ENTRIES_MAX: Final = 10_000
"""The files and folders that are looked at to find them."""
LOADING_S: Final = 24.0
"""The time for all that one request loads."""
_SECRET: Final = re.compile(
    "PASSWORD|PASSWD|SECRET|TOKEN|CREDENTIAL|PRIVATE|ACCESS_KEY|API_KEY|JAAS|CLIENT_CONFIG", re.IGNORECASE
)
ARGS_CHARS_MAX: Final = 8_000
_PATH_BYTES_MAX: Final = 4_096
"""Linux opens no longer path, and `realpath` takes a time that grows with the square of the length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradePlan:
    """The outcome of a dry run."""

    name: str
    revision: int
    """The revision of the document that the verdicts are about."""
    program: upgrading.NextProgram
    verdicts: tuple[ModeVerdict, ...]

    @property
    def fingerprint(self) -> str:
        """A digest of what the verdicts depend on: the same in a second dry run unless the pipeline or the program changed."""
        outlines = [self.program.outline.as_json(), self.program.continued.as_json()]
        parts = [
            self.name,
            self.revision,
            self.program.file,
            self.program.args,
            self.program.sha256,
            outlines,
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class PipelineUpgrades:
    """Loads programs for the pages of upgrades. Used on the background loop; `files` on a thread."""

    def __init__(self, directories: Sequence[str], bootstrap: str) -> None:
        self._sources: Final = ProgramSources(directories=tuple(map(os.path.realpath, directories)))
        self._environment: Final[Mapping[str, str]] = {"ODRADEK_BOOTSTRAP": bootstrap}
        self._clock: Final = SystemClock()
        self._is_closed: Final = threading.Event()
        self._loading: asyncio.Task[upgrading.NextProgram] | None = None

    @property
    def is_offered(self) -> bool:
        """Whether the operator has named a directory of programs."""
        return bool(self._sources.directories)

    def files(self) -> list[str]:
        """Returns the Python files below the directories, sorted; at most FILES_MAX of them."""
        programs: list[str] = []
        entries = 0
        for directory in self._sources.directories:
            for folder, folders, names in os.walk(directory):
                folders[:] = sorted(filter(_is_offered_folder, folders))
                entries += len(names) + len(folders)
                programs += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".py")]
                if entries > _ENTRIES_MAX or len(programs) > FILES_MAX:
                    return programs[:FILES_MAX]
        return programs

    async def program(
        self, document: PipelineDocument, file: str, args: tuple[str, ...], *, by: str
    ) -> upgrading.NextProgram:
        """Loads a program in a process of its own. WrongProgram; KafkaError while another one is being loaded."""
        _check_path(file)
        if self._loading is not None and not self._loading.done():
            raise KafkaError(
                ErrorCode.CONCURRENT_TRANSACTIONS, "another program is being loaded: try again soon"
            )
        suffix, end_s = document.current.suffix, self._clock.monotonic() + LOADING_S

        def load() -> upgrading.NextProgram:
            self._check(file)
            _log.info(
                "pipeline_program_loaded", by=by, pipeline=document.name, file=file, arguments=len(args)
            )
            program = self._loaded(file, args, "", end_s)
            continued = self._loaded(file, args, suffix, end_s) if suffix else program
            if continued.sha256 != program.sha256:
                raise WrongProgram(f"{file!r:.250} changed while it was loaded: try again")
            return upgrading.NextProgram(
                file=file,
                args=args,
                outline=program.outline,
                continued=continued.outline,
                sha256=program.sha256,
            )

        self._loading = asyncio.get_running_loop().create_task(asyncio.to_thread(load))
        self._loading.add_done_callback(_seen)
        return await asyncio.shield(self._loading)

    def close(self) -> None:
        """Ends the program that is being loaded, within a moment. No other is loaded after that."""
        self._is_closed.set()

    def _loaded(self, file: str, args: tuple[str, ...], suffix: str, end_s: float) -> FileOutline:
        return program_outline(
            Path(file),
            args,
            {**_without_secrets(os.environ), **self._environment},
            suffix,
            sources=self._sources,
            limit_s=max(0.0, end_s - self._clock.monotonic()),
            is_stopped=self._is_closed.is_set,
        )

    def _check(self, file: str) -> None:
        """Raises WrongProgram for a file that `files` does not offer. A path may lead there through links to folders."""
        folder, name = os.path.split(file)
        folder = os.path.realpath(folder)
        roots = [directory for directory in self._sources.directories if is_within(folder, directory)]
        real = os.path.realpath(file)
        if not roots or not self._sources.cover(real):
            raise WrongProgram(
                f"{file!r:.250} comes from none of the directories that this console was started with (--programs)"
            )
        is_offered = any(
            all(map(_is_offered_folder, Path(folder).relative_to(directory).parts)) for directory in roots
        )
        if not is_offered or not name.endswith(".py") or not real.endswith(".py"):
            raise WrongProgram(
                f"{file!r:.250} is not offered: a program is a .py file, in no folder that begins with . or __"
            )


def _without_secrets(ours: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without what may log in as the console, or as its operator."""
    return {name: text for name, text in ours.items() if not _SECRET.search(name)}


def _is_offered_folder(name: str) -> bool:
    return not name.startswith((".", "__"))


def _check_path(file: str) -> None:
    """Raises WrongProgram for a text that is no path of a file. Looks at no file."""
    try:
        length = len(os.fsencode(file))
    except UnicodeEncodeError:
        raise WrongProgram(f"{file!r:.250} is no path: it holds characters that no path can have") from None
    if length > _PATH_BYTES_MAX:
        raise WrongProgram(f"{file!r:.250} is no path: it has {length} bytes, and may have {_PATH_BYTES_MAX}")
    if not os.path.isabs(file) or "\0" in file:
        raise WrongProgram(
            f"{file!r:.250} comes from none of the directories that this console was started with (--programs)"
        )


def _seen(task: asyncio.Task[upgrading.NextProgram]) -> None:
    """Reads the outcome of a task whose page was closed."""
    if not task.cancelled():
        task.exception()


def planned_upgrade(store: PipelineStore, name: str, program: upgrading.NextProgram) -> UpgradePlan:
    """Returns the verdicts on every mode. Changes nothing."""
    document = store.document(name)
    return UpgradePlan(
        name=name,
        revision=document.revision,
        program=program,
        verdicts=upgrading.preview(store, document, program),
    )


def carried_out(
    store: PipelineStore,
    plan_fingerprint: str,
    name: str,
    program: upgrading.NextProgram,
    mode: UpgradeMode,
    *,
    by: str,
    now_ms: int,
    swap_lag: int | None,
) -> PipelineDocument:
    """Makes the next version, as the dry run showed it. PipelineConflict when the pipeline or the program has changed since."""
    plan = planned_upgrade(store, name, program)
    if plan.fingerprint != plan_fingerprint:
        raise PipelineConflict(
            f"pipeline {name} or its program has changed since the dry run: look at it again"
        )
    return upgrading.upgrade(
        store, name, program, mode, by=by, now_ms=now_ms, swap_lag=swap_lag, expected_revision=plan.revision
    )
