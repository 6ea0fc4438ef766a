# What `_fast.py` needs of CPython and Cython's own declarations leave out.

cdef extern from "Python.h":
    # A new object with room for `length` items, all NULL, known to the garbage collector.
    object PyType_GenericAlloc(type kind, Py_ssize_t length)
    void PyObject_GC_UnTrack(object item)
