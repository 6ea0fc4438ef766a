"""A pipeline's program: a Python file that defines `app`, or a function `pipeline(spark)`. Here it is loaded, not started."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from odradek.model.errors import OdradekError

MODULE: Final = "odradek_pipeline_program"
"""What the program's `__name__` is: not `__main__`, so that a block for running it by hand does not run."""
_WHAT: Final = "define `app = Streams(...)`, or a function `pipeline(spark)` that returns writers of streams"


class WrongProgram(OdradekError):
    """The program cannot be run as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedProgram:
    """Exactly one of `app` and `pipeline` is there."""

    module: ModuleType
    app: Any = None
    """Of `odradek.streams`."""
    pipeline: Callable[[Any], Any] | None = None


def load_program(file: Path, args: Sequence[str]) -> LoadedProgram:
    """Run the file's top level, with `args` in `sys.argv[1:]` and its folder last in `sys.path`.

    WrongProgram, with the line of the file, when it is not there, raises, or defines neither.
    """
    sys.argv[:] = [str(file), *args]
    sys.path.append(
        str(file.parent)
    )  # last: a program called copy.py must not stand in for Python's own module
    spec = importlib.util.spec_from_file_location(MODULE, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise WrongProgram(f"{file}: there is no such Python file on this machine")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise WrongProgram(f"{error.filename or file}, line {error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's own code: any error is one of the file
        raise WrongProgram(f"{_line_of(file, error)}: {type(error).__name__}: {error}") from None
    return _chosen(file, module)


def _chosen(file: Path, module: ModuleType) -> LoadedProgram:
    app, pipeline = getattr(module, "app", None), getattr(module, "pipeline", None)
    if app is not None and pipeline is not None:
        raise WrongProgram(f"{file} defines both `app` and `pipeline`: {_WHAT}")
    if callable(pipeline):
        return LoadedProgram(module=module, pipeline=pipeline)
    if callable(getattr(app, "start", None)):
        return LoadedProgram(module=module, app=app)
    raise WrongProgram(f"{file} defines no pipeline: {_WHAT}")


def _line_of(file: Path, error: BaseException) -> str:
    """Where in the file, as far as the traceback says."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)
    ]
    return f"{file}, line {lines[-1]}" if lines else str(file)
