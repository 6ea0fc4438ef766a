"""A pipeline's program: a Python file that defines `app`, or a function `pipeline(spark)`. Here it is loaded, not started."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import stat
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from odradek.model.errors import OdradekError
from odradek.pipelines.outline import ProgramOutline
from odradek.runtime.real_bounded_run import OverrunError, RunBounds, run_bounded
from odradek.runtime.real_clock import SystemClock

MODULE: Final = "odradek_pipeline_program"
"""The program's `__name__`: not `__main__`, so that a block for running it by hand does not run."""
LOADING_MAX_S: Final = 120.0
OUTPUT_BYTES_MAX: Final = 1 << 20
ERRORS_BYTES_MAX: Final = 64 << 10
TEXT_CHARS_MAX: Final = 1_000
"""The greatest length of an error about a wrong program."""
_WHAT: Final = "define `app = Streams(...)`, or a function `pipeline(spark)` that returns writers of streams"


class WrongProgram(OdradekError):
    """The program cannot be run as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedProgram:
    """A loaded program: its module, and either `app` or `pipeline`, whichever it defines."""

    module: ModuleType
    sha256: str
    """The digest of the file's bytes, as they were run."""
    app: Any = None
    """The app of `odradek.streams`."""
    pipeline: Callable[[Any], object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOutline:
    """The outline of a program's file, and the digest of the file's bytes, as they were run."""

    outline: ProgramOutline
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSources:
    """Holds where a program may come from: real paths, without symlinks."""

    directories: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Programs that this user ran by hand."""

    def cover(self, real: str) -> bool:
        """Tells whether a program may come from a path. `real` has no symlinks."""
        return real in self.files or any(is_within(real, directory) for directory in self.directories)

    def check_owners(self, real: str, about: os.stat_result) -> None:
        """Raises WrongProgram when any user of the machine can change or replace the program."""
        if about.st_mode & stat.S_IWOTH:
            raise WrongProgram(f"{real} is not run: every user of this machine can change it (chmod o-w)")
        trusted = {os.geteuid(), 0}
        for directory in self._folders(real):
            folder = os.stat(directory)
            if not folder.st_mode & stat.S_IWOTH:
                continue
            if not folder.st_mode & stat.S_ISVTX or about.st_uid not in trusted:
                raise WrongProgram(
                    f"{real} is not run: every user of this machine can change {directory} (chmod o-w)"
                )
        if real in self.files and about.st_uid not in trusted:
            raise WrongProgram(f"{real} is not run: it belongs to another user")

    def _folders(self, real: str) -> list[str]:
        """Returns the folders of a program up to the directory that is allowed."""
        roots = [directory for directory in self.directories if is_within(real, directory)]
        folders = [os.path.dirname(real)]
        while roots and folders[-1] not in roots:
            folders.append(os.path.dirname(folders[-1]))
        return folders


def is_within(real: str, directory: str) -> bool:
    """Tells whether a path is the directory's or below it. Both are real paths."""
    return real == directory or real.startswith(directory.rstrip("/") + "/")


def load_program(file: Path, args: Sequence[str], sources: ProgramSources | None = None) -> LoadedProgram:
    """Runs the file's top level, with `args` in `sys.argv[1:]` and its folder last in `sys.path`.

    WrongProgram, with the line of the file, when it is not there, raises, or defines neither; or when it does not come from
    `places`. None: the user names the file, so it may come from anywhere.
    """
    file, source = _opened(file, sources)
    sys.argv[:] = [str(file), *args]
    sys.path.append(str(file.parent))  # last: a program called copy.py must not replace Python's own module
    spec = importlib.util.spec_from_file_location(MODULE, file, loader=_Read(MODULE, str(file), source))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise WrongProgram(f"{error.filename or file}, line {error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's own code: any error is one of the file
        raise WrongProgram(f"{_line_of(file, error)}: {type(error).__name__}: {error}") from None
    return _chosen(file, module, hashlib.sha256(source).hexdigest())


def outline_of_file(
    file: Path, args: Sequence[str], environment: Mapping[str, str], suffix: str = ""
) -> ProgramOutline:
    """Returns the outline of a file of the user's own, which may come from anywhere. WrongProgram when it is no program.

    `environment` is added to ours; `suffix` is the suffix of the file's outputs.
    """
    return program_outline(file, args, {**os.environ, **environment}, suffix).outline


def program_outline(
    file: Path,
    args: Sequence[str],
    environment: Mapping[str, str],
    suffix: str = "",
    *,
    sources: ProgramSources | None = None,
    limit_s: float = LOADING_MAX_S,
    is_stopped: Callable[[], bool] = lambda: False,
) -> FileOutline:
    """Returns the outline of a file, loaded in a process of its own, so that this one needs no Spark. WrongProgram when it
    is no program.

    `environment` is the process's; `sources` limits the directories that the file may come from. The process is killed after
    `limit_s`, and once `is_stopped`.
    """
    order: dict[str, object] = {"suffix": suffix, "file": str(file), "args": list(args)}
    if sources is not None:
        order["directories"] = list(sources.directories)
    try:
        output, errors = run_bounded(
            [sys.executable, "-P", "-m", "odradek.pipelines.outlining"],
            json.dumps(order).encode(),  # every user of the machine can read the words of a command
            environment,
            RunBounds(limit_s=limit_s, output_bytes_max=OUTPUT_BYTES_MAX, errors_bytes_max=ERRORS_BYTES_MAX),
            SystemClock(),
            is_stopped,
        )
    except OverrunError as error:
        raise WrongProgram(f"{file}: to load it {error}") from None
    try:
        content = json.loads(output.decode(errors="backslashreplace").splitlines()[-1])
        if "wrong" in content:
            raise WrongProgram(str(content["wrong"])[:TEXT_CHARS_MAX])
        return FileOutline(
            outline=ProgramOutline.from_json(content["outline"]), sha256=str(content["sha256"])
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        last: Iterable[str] = errors.decode(errors="backslashreplace").splitlines()[-1:]
        reason = "".join(last) or "it wrote no reason"
        raise WrongProgram(f"{file} could not be loaded: {reason}"[:TEXT_CHARS_MAX]) from None


class _Read(SourceFileLoader):
    """Runs what was read, and not what the file holds by now."""

    def __init__(self, name: str, file: str, source: bytes) -> None:
        super().__init__(name, file)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._source, self.path)


def _opened(file: Path, sources: ProgramSources | None) -> tuple[Path, bytes]:
    """Returns the program's path, and what it holds. With `places`, the path is real, and the file that was opened is the one
    there.

    So a link that changes after a check leads to nothing that was not checked.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise WrongProgram(f"{file}: there is no such Python file on this machine")
            if sources is None:
                return file, opened.read()
            real = os.path.realpath(file)
            if not os.path.samestat(about, os.lstat(real)):
                raise WrongProgram(f"{file} is not run: it changed while it was opened")
            if not sources.cover(real):
                raise WrongProgram(
                    f"{file} is not run: it is {real}, which comes from no directory that this supervisor allows"
                )
            sources.check_owners(real, about)
            return Path(real), opened.read()
    except (FileNotFoundError, NotADirectoryError):
        raise WrongProgram(f"{file}: there is no such Python file on this machine") from None
    except (OSError, ValueError) as error:
        raise WrongProgram(f"{file} cannot be read: {error}") from None


def _chosen(file: Path, module: ModuleType, sha256: str) -> LoadedProgram:
    app, pipeline = getattr(module, "app", None), getattr(module, "pipeline", None)
    if app is not None and pipeline is not None:
        raise WrongProgram(f"{file} defines both `app` and `pipeline`: {_WHAT}")
    if callable(pipeline):
        return LoadedProgram(module=module, sha256=sha256, pipeline=pipeline)
    if callable(getattr(app, "start", None)):
        return LoadedProgram(module=module, sha256=sha256, app=app)
    raise WrongProgram(f"{file} defines no pipeline: {_WHAT}")


def _line_of(file: Path, error: BaseException) -> str:
    """Returns the file, and the line if the traceback has it."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)
    ]
    return f"{file}, line {lines[-1]}" if lines else str(file)
