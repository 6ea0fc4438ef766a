"""Records as ksqlDB writes them."""

from odradek.sql.formats.record_format import FORMAT_NAMES, RecordFormat, record_format

__all__ = ["FORMAT_NAMES", "RecordFormat", "record_format"]
