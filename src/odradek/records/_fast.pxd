# What `_fast.py` shares with `_fast_columns.py`, typed. What each function promises stands there.

cdef struct Field:
    unsigned char* start
    long long length  # -1: null

# A `Frame` without Python objects.
cdef struct Expected:
    long long record_count
    long long last_offset_delta
    long long base_offset
    long long base_timestamp
    long long append_timestamp
    bint is_append_time

# A record, up to its headers.
cdef struct Parsed:
    long long timestamp
    long long offset_delta
    Field key
    Field value
    long long header_count
    unsigned char* headers
    unsigned char* end

cdef const char* parse_record(
    unsigned char* position, unsigned char* end, const Expected* expected, long long previous_delta, Parsed* record
) noexcept nogil
cdef unsigned char* parse_header(unsigned char* position, unsigned char* end, Field* key, Field* value) noexcept nogil
cdef int expect(Expected* expected, frame, long long size_bytes) except -1

cdef long long body_bytes(
    long long timestamp_delta, long long offset_delta, long long key_bytes, long long value_bytes
) noexcept nogil
cdef long long varint_bytes(long long number) noexcept nogil
cdef long long field_bytes(long long length) noexcept nogil
cdef unsigned char* put_varint(unsigned char* position, long long number) noexcept nogil
cdef unsigned char* put_field(unsigned char* position, const unsigned char* start, long long length) noexcept nogil
