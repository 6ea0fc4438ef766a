"""The characters that one place of a regular expression accepts: letters, ranges, and RE2's classes with a name.

A class is asked for one character at a time, and remembers what it said. So it costs nothing that an alphabet is large: what
counts is which characters occur, and `cost` says how much it is to look at one.
"""

from __future__ import annotations

import string
import unicodedata
from typing import Final, NamedTuple

WORD_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "_")
_SPACES: Final = frozenset("\t\n\f\r ")
_ASCII: Final = frozenset(map(chr, range(128)))
_PRINTED: Final = frozenset(map(chr, range(32, 127)))
PERL_CLASSES: Final = {"d": frozenset(string.digits), "w": WORD_CHARACTERS, "s": _SPACES}
"""Perl's character classes by the letter after the backslash; an upper-case letter is the complement."""
ASCII_CLASSES: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": _ASCII,
    "blank": frozenset("\t "),
    "cntrl": _ASCII - _PRINTED,
    "digit": frozenset(string.digits),
    "graph": _PRINTED - {" "},
    "lower": frozenset(string.ascii_lowercase),
    "print": _PRINTED,
    "punct": frozenset(string.punctuation),
    "space": _SPACES | {"\v"},
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD_CHARACTERS,
    "xdigit": frozenset(string.hexdigits),
}
_CATEGORIES: Final = frozenset(
    [
        "C",
        "Cc",
        "Cf",
        "Cn",
        "Co",
        "Cs",
        "L",
        "Ll",
        "Lm",
        "Lo",
        "Lt",
        "Lu",
        "M",
        "Mc",
        "Me",
        "Mn",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Pe",
        "Pf",
        "Pi",
        "Po",
        "Ps",
        "S",
        "Sc",
        "Sk",
        "Sm",
        "So",
        "Z",
        "Zl",
        "Zp",
        "Zs",
    ]
)
_SCRIPTS: Final = {
    name: name.upper()
    for name in ("Arabic", "Armenian", "Cyrillic", "Greek", "Hebrew", "Hiragana", "Katakana", "Latin", "Thai")
} | {"Han": "CJK"}
"""How the names of a script's characters begin; beside them there are Any and Common, which is all that is no letter."""
UNICODE_CLASSES: Final = _CATEGORIES | _SCRIPTS.keys() | {"Any", "Common"}
_SETS: Final = PERL_CLASSES | ASCII_CLASSES
_RANGES_PER_COST: Final = 2
_NAMED_COST: Final = 2


class NamedClass(NamedTuple):
    """One of Perl's, of POSIX, or of Unicode, or what is not in it."""

    name: str
    is_negated: bool

    def accepts(self, character: str) -> bool:
        letters = _SETS.get(self.name)
        is_in = _is_of(character, self.name) if letters is None else character in letters
        return is_in != self.is_negated


class ClassParts(NamedTuple):
    """The parts of a bracket expression, or of a class that equals one."""

    letters: frozenset[str] = frozenset()
    ranges: frozenset[tuple[str, str]] = frozenset()
    named: frozenset[NamedClass] = frozenset()
    is_negated: bool = False


class CharacterClass:
    """Whether it accepts a character: look in `known`, and `learn` what is not there, which costs `cost`."""

    __slots__ = ("_ignores_case", "_letters", "_parts", "cost", "known")

    def __init__(self, parts: ClassParts, *, ignore_case: bool) -> None:
        self._parts = parts
        self._ignores_case = ignore_case
        self._letters = _both_cases(parts.letters) if ignore_case else parts.letters
        self.known: dict[str, bool] = {}
        forms = 3 if ignore_case else 1
        self.cost: Final = 1 + forms * (
            len(parts.ranges) // _RANGES_PER_COST + _NAMED_COST * len(parts.named)
        )
        """The cost of a test, in visits of an instruction."""

    def learn(self, character: str) -> bool:
        forms = _both_cases(frozenset(character)) if self._ignores_case else (character,)
        verdict = self.known[character] = any(map(self._holds, forms)) != self._parts.is_negated
        return verdict

    def _holds(self, character: str) -> bool:
        return (
            character in self._letters
            or any(low <= character <= high for low, high in self._parts.ranges)
            or any(named.accepts(character) for named in self._parts.named)
        )


def _both_cases(characters: frozenset[str]) -> frozenset[str]:
    """Returns the characters in upper and lower case, where these forms are one character each."""
    return frozenset(
        form
        for character in characters
        for form in (character, character.lower(), character.upper())
        if len(form) == 1
    )


def _is_of(character: str, name: str) -> bool:
    """Returns whether a character is in a category or script of Unicode."""
    if name in _CATEGORIES:
        return unicodedata.category(character).startswith(name)
    if name == "Any":
        return True
    if name == "Common":
        return not unicodedata.category(character).startswith("L")
    return unicodedata.name(character, "").startswith(_SCRIPTS[name])
