"""SASLprep (RFC 4013): names and passwords that look alike to a person become alike.

Nothing of it is imported, or done, for ASCII.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.model.lazy import lazy
from odradek.security.sasl.exchange import LoginRefused

if TYPE_CHECKING:
    import stringprep
    import unicodedata
else:
    stringprep = lazy("stringprep")
    unicodedata = lazy("unicodedata")


def saslprep(text: str) -> str:
    """LoginRefused for text with characters that the profile prohibits."""
    if text.isascii():
        if any(ord(character) < 32 or ord(character) == 127 for character in text):
            raise LoginRefused("a name or password holds a control character")
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in text
        if not stringprep.in_table_b1(character)
    )
    prepared = unicodedata.normalize("NFKC", mapped)
    if any(_is_prohibited(character) for character in prepared):
        raise LoginRefused("a name or password holds a character that SASLprep does not allow")
    is_right_to_left = [stringprep.in_table_d1(character) for character in prepared]
    is_framed = bool(is_right_to_left) and is_right_to_left[0] and is_right_to_left[-1]
    if any(is_right_to_left) and (any(map(stringprep.in_table_d2, prepared)) or not is_framed):
        raise LoginRefused("a name or password mixes directions of writing")
    return prepared


def _is_prohibited(character: str) -> bool:
    return any(
        table(character)
        for table in (
            stringprep.in_table_c12,
            stringprep.in_table_c21_c22,
            stringprep.in_table_c3,
            stringprep.in_table_c4,
            stringprep.in_table_c5,
            stringprep.in_table_c6,
            stringprep.in_table_c7,
            stringprep.in_table_c8,
            stringprep.in_table_c9,
            stringprep.in_table_a1,
        )
    )
