# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# The types here are C's: Cython checks them, mypy and ruff cannot see those that the .pxd files declare.
# mypy: ignore-errors
"""Memory for answers of a megabyte, used again: `allocate` of `_plain.py` is the same thing to be read, without reuse.

A consumer receives a thousand of these a gigabyte. A new bytearray is filled with zeros before the network fills it, and the
allocator returns large blocks to the system, whose fresh pages cost more than the reading. A block here is not cleared, and
waits for the next answer once nothing refers to it: no view, no Arrow array. What waits is bounded.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBuffer_FillInfo
from cython.cimports.cpython.mem import PyMem_RawFree, PyMem_RawMalloc

_BLOCKS_MAX = cython.declare(cython.int, 16)
_KEPT_BYTES_MAX = cython.declare(cython.longlong, 8 * 1024 * 1024)
_GRANULE_BYTES = cython.declare(cython.longlong, 64 * 1024)
"""Sizes are rounded up to a multiple of this, so that answers of about the same size can use each other's blocks."""

_HABITUAL_BYTES = cython.declare(cython.longlong, 4 * 1024 * 1024)
"""The size of the block that teaches the C library's allocator: glibc keeps up to twice the largest block that it has mapped
and released, rather than the 128 KiB of a new process. The values of a poll, bytes objects, then have no new pages."""

Block = cython.struct(start=cython.p_uchar, capacity=cython.longlong)
Waiting = cython.struct(blocks=Block[16], count=cython.int, size_bytes=cython.longlong)

_waiting = cython.declare(Waiting)
"""Blocks that nothing refers to. The GIL guards them."""
_waiting.count = 0
_waiting.size_bytes = 0
_is_taught = cython.declare(cython.bint)
_is_taught = False


@cython.cfunc
def _take(size_bytes: cython.longlong) -> Block:
    """Returns the smallest waiting block that is large enough and not twice as large, or a new one."""
    best: cython.int = -1
    index: cython.int
    block: Block
    for index in range(_waiting.count):
        capacity: cython.longlong = _waiting.blocks[index].capacity
        fits: cython.bint = size_bytes <= capacity <= 2 * size_bytes + _GRANULE_BYTES
        if fits and (best < 0 or capacity < _waiting.blocks[best].capacity):
            best = index
    if best >= 0:
        block = _waiting.blocks[best]
        _waiting.count -= 1
        _waiting.size_bytes -= block.capacity
        _waiting.blocks[best] = _waiting.blocks[_waiting.count]
        return block
    global _is_taught
    if not _is_taught:
        _is_taught = True
        PyMem_RawFree(PyMem_RawMalloc(_HABITUAL_BYTES))  # not a page of it is touched
    block.capacity = max(1, (size_bytes + _GRANULE_BYTES - 1) // _GRANULE_BYTES) * _GRANULE_BYTES
    block.start = cython.cast(cython.p_uchar, PyMem_RawMalloc(block.capacity))
    if block.start == cython.NULL:
        raise MemoryError(f"no memory for {size_bytes} bytes")
    return block


@cython.cfunc
@cython.exceptval(check=False)
def _give_back(block: Block) -> cython.void:
    if _waiting.count < _BLOCKS_MAX and _waiting.size_bytes + block.capacity <= _KEPT_BYTES_MAX:
        _waiting.blocks[_waiting.count] = block
        _waiting.count += 1
        _waiting.size_bytes += block.capacity
    else:
        PyMem_RawFree(block.start)


@cython.final
@cython.cclass
class Memory:
    """A block of memory that is writable through the buffer protocol."""

    _block: Block
    _size_bytes: cython.longlong

    def __cinit__(self, size_bytes: cython.longlong) -> None:
        if size_bytes < 0:
            raise ValueError(f"{size_bytes} bytes cannot be allocated")
        self._block = _take(size_bytes)
        self._size_bytes = size_bytes

    def __dealloc__(self) -> None:
        if self._block.start != cython.NULL:
            _give_back(self._block)

    def __getbuffer__(self, buffer: cython.pointer(Py_buffer), flags: cython.int) -> None:
        PyBuffer_FillInfo(buffer, self, self._block.start, self._size_bytes, False, flags)

    def __len__(self) -> int:
        return self._size_bytes


def allocate(size_bytes: int) -> memoryview:
    """Returns writable memory of this size. What it holds is undefined."""
    return memoryview(Memory(size_bytes))


def waiting_bytes() -> int:
    """Returns the size of all blocks that wait to be used again."""
    return _waiting.size_bytes
