"""Topics as tables in object storage: `odradek archive` and `format("odradek-archive")`."""

from __future__ import annotations
