"""What the compiled engine keeps of memory that nothing refers to."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable

import pytest

from odradek.records import engine

MIB = 1 << 20


@pytest.fixture
def waiting_bytes(record_engine: str) -> Callable[[], int]:
    if record_engine == "plain":
        pytest.skip("the plain engine keeps nothing")
    function: Callable[[], int] = importlib.import_module("odradek.records._fast_memory").waiting_bytes
    return function


def _address(memory: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def test_a_block_is_used_again_for_about_the_same_size(waiting_bytes: Callable[[], int]) -> None:
    memory = engine.active.allocate(MIB)
    address = _address(memory)
    before = waiting_bytes()
    del memory
    assert waiting_bytes() >= before
    assert address in [_address(engine.active.allocate(MIB - 1000)) for _ in range(3)]


def test_what_waits_is_bounded(waiting_bytes: Callable[[], int]) -> None:
    blocks = [engine.active.allocate(MIB) for _ in range(30)]
    del blocks
    assert 0 < waiting_bytes() <= 8 * MIB
    block = engine.active.allocate(64 * MIB)
    del block
    assert waiting_bytes() <= 8 * MIB


def test_a_small_request_does_not_occupy_a_large_block(waiting_bytes: Callable[[], int]) -> None:
    block = engine.active.allocate(4 * MIB)
    del block
    before = waiting_bytes()
    memory = engine.active.allocate(100_000)
    assert before - waiting_bytes() <= 300_000
    del memory
