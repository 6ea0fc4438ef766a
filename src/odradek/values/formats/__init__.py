"""Records as ksqlDB writes them."""

from odradek.values.formats.record_format import (
    FORMAT_NAMES,
    NO_KEY,
    RecordFormat,
    check_map_keys,
    format_of_text,
    record_format,
)

__all__ = ["FORMAT_NAMES", "NO_KEY", "RecordFormat", "check_map_keys", "format_of_text", "record_format"]
