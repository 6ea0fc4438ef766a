"""Translates operators into DataFrames. Importing a family registers its operators' translations, so all are imported here."""

from __future__ import annotations

from odradek.streams.translation import join_operators, keyed_operators, stateless
from odradek.streams.translation.translator import Translator

FAMILIES = (stateless, keyed_operators, join_operators)

__all__ = ["FAMILIES", "Translator"]
