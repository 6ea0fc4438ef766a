"""The translator with all its families: importing one tells the translator what its operators do."""

from __future__ import annotations

from odradek.streams.translation import join_operators, keyed_operators, stateless
from odradek.streams.translation.translator import Translator

FAMILIES = (stateless, keyed_operators, join_operators)

__all__ = ["FAMILIES", "Translator"]
