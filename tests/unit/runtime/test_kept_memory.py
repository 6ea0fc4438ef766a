"""Freed memory that the C library keeps, counted in pages that the system has to give."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from odradek.runtime.real_process import keep_freed_memory

def use(rounds):
    for _ in range(rounds):
        blocks = [bytearray(8 << 20) for _ in range(3)]
        for block in blocks:
            block[:: resource.getpagesize()] = b"x" * len(range(0, len(block), resource.getpagesize()))
        del block, blocks

if sys.argv[1] == "kept":
    keep_freed_memory(64 << 20)
use(3)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use(10)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize() >> 20)
"""


def _fresh_megabytes(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_memory_that_is_kept_is_used_again() -> None:
    assert _fresh_megabytes("kept") < 24
    assert _fresh_megabytes("given back") > 100
