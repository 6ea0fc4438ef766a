"""Text to statements."""

from odradek.sql.language.parsing import parse, parse_one

__all__ = ["parse", "parse_one"]
