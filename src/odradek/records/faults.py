"""The two ways in which a batch can be wrong, and which of Kafka's codes each one gets.

A batch whose frame or CRC is wrong was damaged on its way: CORRUPT_MESSAGE, which a client may retry. A batch
whose CRC is right but whose content is wrong was made that way: INVALID_RECORD, which no retry will mend.
"""

from __future__ import annotations

from odradek.model.errors import ErrorCode, KafkaError


def corrupt(message: str) -> KafkaError:
    """Returns the error for a batch whose frame or checksum is wrong."""
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)


def invalid(message: str) -> KafkaError:
    """Returns the error for a batch whose content contradicts its header or the format."""
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def damaged(codec_name: str, reason: object) -> KafkaError:
    """Returns the error for compressed data that cannot be read to its end."""
    return invalid(f"the batch's {codec_name} data is damaged: {reason}")


class DecompressionLimitExceeded(KafkaError):
    """Compressed data would expand beyond its limit; decompression stopped there."""


def expands_too_far(codec_name: str, compressed_bytes: int, allowed_bytes: int) -> DecompressionLimitExceeded:
    return DecompressionLimitExceeded(
        ErrorCode.INVALID_RECORD,
        f"{compressed_bytes} bytes of {codec_name} expand beyond the {allowed_bytes} allowed",
    )
