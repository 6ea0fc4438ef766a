"""SQL for streams and tables: ksqlDB's statements, on `odradek.streams`. Names are imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy_names

if TYPE_CHECKING:
    from odradek.sql.dbapi import connect, stream
    from odradek.values.errors import SqlError

_WHERE: Final = {"odradek.sql.dbapi": ("connect", "stream"), "odradek.values.errors": ("SqlError",)}

__all__ = ["SqlError", "connect", "stream"]

__getattr__ = lazy_names(globals(), _WHERE)
