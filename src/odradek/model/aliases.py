"""Names for types that have no class: JSON as Python's `json` reads it, and the settings of a client as keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
"""A JSON value."""
ClientSettings: TypeAlias = Mapping[str, Any]
"""Keyword arguments of a client, such as `bootstrap_servers`. The client checks names and values when it is made: each setting
has a type of its own.
"""
