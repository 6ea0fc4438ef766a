"""Record batches: build, read, check, compress. `odradek.records.arrow` is imported separately: it needs
pyarrow.
"""

from odradek.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    assign,
    check_crc,
    crc_of,
    read_header,
    split_batches,
    stamp_producer,
)
from odradek.records.builder import BatchBuilder, FilledBatch
from odradek.records.codec import DEFAULT_LIMITS, READ_LIMITS, Codec, Limits, compress, decompress
from odradek.records.content import (
    ProducedBatch,
    RecordsSummary,
    decode_batch,
    produced_batch,
    recompressed,
    validate_records,
)
from odradek.records.control import ControlKind, ControlMarker, control_batch, data_batches, read_control
from odradek.records.faults import DecompressionLimitExceeded
from odradek.records.partition import murmur2, partition_of
from odradek.records.record import Header, Record, TimestampType

__all__ = [
    "DEFAULT_LIMITS",
    "HEADER_BYTES",
    "READ_LIMITS",
    "BatchBuilder",
    "BatchHeader",
    "Codec",
    "ControlKind",
    "ControlMarker",
    "DecompressionLimitExceeded",
    "FilledBatch",
    "Header",
    "Limits",
    "ProducedBatch",
    "Record",
    "RecordsSummary",
    "TimestampType",
    "assign",
    "check_crc",
    "compress",
    "control_batch",
    "crc_of",
    "data_batches",
    "decode_batch",
    "decompress",
    "murmur2",
    "partition_of",
    "produced_batch",
    "read_control",
    "read_header",
    "recompressed",
    "split_batches",
    "stamp_producer",
    "validate_records",
]
