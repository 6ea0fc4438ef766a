# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# The types here are C's: Cython checks them, mypy and ruff cannot see those that the .pxd files declare.
# mypy: ignore-errors
# ruff: noqa: F821
"""Places of records, compiled: the partition of a key (`murmur2`), and records with the place that they were read from
(`placed`). `_plain.py` is the same thing to be read.

A consumer hands out millions of these tuples. Made by Python code, each costs five times what reading its record does.
"""

from __future__ import annotations

from typing import TypeVar

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.ref import Py_INCREF
from cython.cimports.cpython.tuple import PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_SET_ITEM
from cython.cimports.odradek.records.cpython_extra import PyObject_GC_UnTrack, PyType_GenericAlloc

from odradek.records.record import Record
from odradek.runtime.ports import Buffer

T = TypeVar("T", bound=tuple)
_MURMUR_SEED = cython.declare(cython.uint, 0x9747_B28C)
_MURMUR_MULTIPLIER = cython.declare(cython.uint, 0x5BD1_E995)


def placed(records: list[Record], kind: type[T], place: tuple) -> list[T]:
    """Returns every record as a tuple of this kind: the items of `place`, then the record's."""
    items: list = []
    if not issubclass(kind, tuple):
        raise TypeError(f"{kind!r} is no kind of tuple")
    for record in records:
        if not PyTuple_Check(record):
            raise TypeError(f"a record is a tuple, not {type(record).__name__}")
        items.append(_joined(place, record, kind))
    return items


@cython.cfunc
def _joined(place: tuple, record: object, kind: type):
    """`kind._make(place + record)` at a tenth of its price. Nothing in it can close a cycle: the collector may forget it."""
    place_count: cython.Py_ssize_t = PyTuple_GET_SIZE(place)
    record_count: cython.Py_ssize_t = PyTuple_GET_SIZE(record)
    joined = PyType_GenericAlloc(kind, place_count + record_count)
    PyObject_GC_UnTrack(joined)
    index: cython.Py_ssize_t
    for index in range(place_count):
        _set_item(joined, index, cython.cast(object, PyTuple_GET_ITEM(place, index)))
    for index in range(record_count):
        _set_item(joined, place_count + index, cython.cast(object, PyTuple_GET_ITEM(record, index)))
    return joined


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _set_item(joined: object, index: cython.Py_ssize_t, content: object) -> cython.void:
    Py_INCREF(content)  # the tuple takes it over
    PyTuple_SET_ITEM(joined, index, content)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _murmur2(data: cython.p_uchar, length: cython.Py_ssize_t) -> cython.uint:
    h: cython.uint = _MURMUR_SEED ^ cython.cast(cython.uint, length)
    k: cython.uint
    while length >= 4:
        k = data[0] | (data[1] << 8) | (data[2] << 16) | (cython.cast(cython.uint, data[3]) << 24)
        k *= _MURMUR_MULTIPLIER
        k ^= k >> 24
        k *= _MURMUR_MULTIPLIER
        h *= _MURMUR_MULTIPLIER
        h ^= k
        data += 4
        length -= 4
    if length > 0:
        k = data[0]
        if length > 1:
            k |= data[1] << 8
        if length > 2:
            k |= data[2] << 16
        h ^= k
        h *= _MURMUR_MULTIPLIER
    h ^= h >> 13
    h *= _MURMUR_MULTIPLIER
    h ^= h >> 15
    return h


def murmur2(data: Buffer) -> int:
    """Returns the Java client's hash of a key: murmur2 with its seed, as a signed 32-bit number."""
    view: Py_buffer
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    try:
        return cython.cast(cython.int, _murmur2(cython.cast(cython.p_uchar, view.buf), view.len))
    finally:
        PyBuffer_Release(cython.address(view))
