# What `_fast_headers.py` shares with `_fast_columns.py`, typed. What it promises stands there.

from odradek.records._fast cimport Expected

cdef bint expect_plain(Expected* expected, unsigned char* batch, long long size_bytes, bint verify_crc) except -1
