"""Tables that are asked while they change: a local, ordered view of a compacted topic. Names are imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy_names

if TYPE_CHECKING:
    from odradek.views.aio import AsyncTableView
    from odradek.views.freshness import Freshness, PartitionFreshness, ViewStatus
    from odradek.views.reads import TableRow
    from odradek.views.rocksdb_store import RocksDBLimits
    from odradek.views.table_view import TableView
    from odradek.views.windows import WindowedKey

_WHERE: Final = {
    "odradek.views.aio": ("AsyncTableView",),
    "odradek.views.freshness": ("Freshness", "PartitionFreshness", "ViewStatus"),
    "odradek.views.reads": ("TableRow",),
    "odradek.views.rocksdb_store": ("RocksDBLimits",),
    "odradek.views.table_view": ("TableView",),
    "odradek.views.windows": ("WindowedKey",),
}

__all__ = [
    "AsyncTableView",
    "Freshness",
    "PartitionFreshness",
    "RocksDBLimits",
    "TableRow",
    "TableView",
    "ViewStatus",
    "WindowedKey",
]

__getattr__ = lazy_names(globals(), _WHERE)
