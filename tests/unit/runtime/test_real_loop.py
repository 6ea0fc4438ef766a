"""The event loop that a setting chooses, with and without uvloop."""

from __future__ import annotations

import asyncio
import warnings

import pytest

from odradek.model.errors import ConfigError
from odradek.runtime import real_loop
from odradek.runtime.real_loop import loop_factory, run_on_loop

uvloop = pytest.importorskip("uvloop", reason="absent: uvloop is not for this platform")


async def loop_class() -> type[asyncio.AbstractEventLoop]:
    return type(asyncio.get_running_loop())


@pytest.mark.parametrize(("choice", "is_uvloop"), [("auto", True), ("uvloop", True), ("asyncio", False)])
def test_the_setting_chooses_the_loop(choice: str, is_uvloop: bool) -> None:
    assert issubclass(run_on_loop(loop_class(), choice), uvloop.Loop) == is_uvloop


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("No module named 'uvloop'"), ImportError("no GLIBC_2.38")]
)
def test_without_uvloop_auto_is_asyncio_and_uvloop_is_refused(
    monkeypatch: pytest.MonkeyPatch, error: ImportError
) -> None:
    class Absent:
        @property
        def new_event_loop(self) -> object:
            raise error

    monkeypatch.setattr(real_loop, "uvloop", Absent())
    assert loop_factory("auto") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a coroutine that is never awaited
        with pytest.raises(ConfigError, match="pip install uvloop"):
            run_on_loop(loop_class(), "uvloop")
