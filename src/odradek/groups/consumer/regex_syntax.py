"""RE2's syntax, read into a small program that `regex` runs.

What is matched consists of characters of a known alphabet: the 65 of topics' names, or those that occur in a list of other
names. So a class of characters is the set of those that it accepts; what lies outside is accepted by none. Where a match begins
and ends is not asked, only whether the whole name matches, so groups capture nothing and greediness makes no difference.

Not RE2, and refused as it refuses them: references back to a group, looking ahead or behind, possessive and atomic
repetition, conditions, comments. Source: https://github.com/google/re2/wiki/Syntax.

A piece of program is a list of instructions whose jumps are relative, so that pieces can be joined and repeated as they are.
"""

from __future__ import annotations

import re
import string
import unicodedata
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode, KafkaError

TOPIC_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "._-")
WORD_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "_")
INSTRUCTIONS_MAX: Final = 20_000
REPEAT_MAX: Final = 1000
DEPTH_MAX: Final = 1000


class Op(IntEnum):
    """What an instruction does."""

    TAKE = 0
    """Step over one character of `accepted`."""
    FORK = 1
    """Go on at both `first` and `second`."""
    JUMP = 2
    """Go on at `first`."""
    CHECK = 3
    """Go on with the next instruction where `place` holds."""


class AnchorPlace(IntEnum):
    """What a CHECK asks of a position between characters."""

    BEGIN = 0
    END = 1
    WORD_BOUNDARY = 2
    NO_WORD_BOUNDARY = 3


class Instruction(NamedTuple):
    op: Op
    accepted: frozenset[str] = frozenset()
    first: int = 0
    second: int = 0
    place: AnchorPlace = AnchorPlace.BEGIN


Piece = list[Instruction]

_SPACES: Final = frozenset("\t\n\f\r ")
_ASCII: Final = frozenset(map(chr, range(128)))
_PRINTED: Final = frozenset(map(chr, range(32, 127)))
_PERL: Final = {"d": frozenset(string.digits), "w": WORD_CHARACTERS, "s": _SPACES}
_POSIX: Final = {
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
_ESCAPED: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PLACES: Final = {
    "A": AnchorPlace.BEGIN,
    "z": AnchorPlace.END,
    "b": AnchorPlace.WORD_BOUNDARY,
    "B": AnchorPlace.NO_WORD_BOUNDARY,
}
_REPEAT: Final = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_OPENING: Final = re.compile(
    r"\?(?:P?<(?P<name>[A-Za-z0-9_]+)>|(?P<on>[imsU]*)(?:-(?P<off>[imsU]+))?(?P<end>[:)]))"
)
_OCTAL: Final = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_HEX: Final = re.compile(r"x(?:\{([0-9A-Fa-f]{1,8})\}|([0-9A-Fa-f]{2}))")
_UNICODE: Final = re.compile(r"([pP])(?:\{(\^?)(\w+)\}|([A-Za-z]))")
_POSIX_CLASS: Final = re.compile(r"\[:(\^?)(\w+):\]")


def parse(pattern: str, alphabet: frozenset[str] = TOPIC_CHARACTERS) -> Piece:
    """The program of a pattern. INVALID_REGULAR_EXPRESSION for what RE2 does not accept, and for what grows too large."""
    return _Parser(pattern, alphabet).parse()


@dataclass(slots=True)
class _Group:
    """A group that is being read: finished branches, the pieces of the current one, and its flag."""

    ignore_case: bool
    branches: list[Piece] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    repeatable: bool = False
    """Whether the last piece may be followed by a repetition."""

    def finished(self) -> Piece:
        self.end_branch()
        whole = self.branches.pop()
        while self.branches:
            branch = self.branches.pop()
            fork = Instruction(Op.FORK, first=1, second=len(branch) + 2)
            whole = [fork, *branch, Instruction(Op.JUMP, first=len(whole) + 1), *whole]
        return whole

    def end_branch(self) -> None:
        self.branches.append([instruction for piece in self.pieces for instruction in piece])
        self.pieces = []
        self.repeatable = False


class _Parser:
    def __init__(self, pattern: str, alphabet: frozenset[str]) -> None:
        self._pattern = pattern
        self._alphabet = alphabet
        self._position = 0
        self._group = _Group(ignore_case=False)
        self._outer: list[_Group] = []
        self._names: set[str] = set()
        self._length = 0

    def parse(self) -> Piece:
        pattern = self._pattern
        while self._position < len(pattern):
            character = pattern[self._position]
            self._position += 1
            if character in "*+?":
                self._repeat(0 if character != "+" else 1, 1 if character == "?" else None)
            elif character == "{" and (bounds := self._match(_REPEAT, back=1)):
                self._repeat(*self._bounds(bounds))
            else:
                self._item(character)
        if self._outer:
            raise self._refusal("a parenthesis is never closed")
        return self._group.finished()

    def _item(self, character: str) -> None:
        group = self._group
        if character == "(":
            self._open()
        elif character == ")":
            self._close()
        elif character == "|":
            group.end_branch()
        elif character == "[":
            self._add_class(self._bracketed())
        elif character == ".":
            self._add_class(self._alphabet)
        elif character in "^$":
            self._add(
                [Instruction(Op.CHECK, place=AnchorPlace.BEGIN if character == "^" else AnchorPlace.END)]
            )
        elif character == "\\":
            self._escaped()
        else:
            self._add_literal(character)

    # -- groups

    def _open(self) -> None:
        if len(self._outer) >= DEPTH_MAX:
            raise self._refusal(f"parentheses are nested more than {DEPTH_MAX} deep")
        ignore_case = self._group.ignore_case
        if self._pattern.startswith("?", self._position):
            opening = self._match(_OPENING)
            if opening is None:
                raise self._refusal("what follows (? is not part of RE2's syntax")
            if (name := opening["name"]) is not None:
                if name in self._names:
                    raise self._refusal(f"the group name {name} is used twice")
                self._names.add(name)
            else:
                ignore_case = "i" not in (opening["off"] or "") and ("i" in opening["on"] or ignore_case)
                if opening["end"] == ")":
                    self._group.ignore_case = ignore_case
                    self._group.repeatable = False
                    return
        self._outer.append(self._group)
        self._group = _Group(ignore_case=ignore_case)

    def _close(self) -> None:
        if not self._outer:
            raise self._refusal("a parenthesis is closed that was never opened")
        piece = self._group.finished()
        self._group = self._outer.pop()
        self._group.pieces.append(piece)
        self._group.repeatable = True

    # -- repetition

    def _bounds(self, bounds: re.Match[str]) -> tuple[int, int | None]:
        digits, comma, more = bounds.groups()
        if len(digits) > 4 or len(more or "") > 4:
            raise self._refusal(f"a repetition is above {REPEAT_MAX}")
        least = int(digits)
        most = least if not comma else int(more) if more else None
        if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
            raise self._refusal(f"a repetition needs 0 <= least <= most <= {REPEAT_MAX}")
        return least, most

    def _repeat(self, least: int, most: int | None) -> None:
        group = self._group
        if not group.repeatable:
            raise self._refusal("a repetition follows nothing that can be repeated")
        if self._pattern.startswith("?", self._position):
            self._position += 1  # lazy: no difference when the whole name has to match
        piece = group.pieces.pop()
        copies = max(least, 1) if most is None else most
        self._grow(copies * (len(piece) + 2))
        once = len(piece)
        if most is None:
            if least == 0:
                loop = [Instruction(Op.FORK, first=1, second=once + 2), *piece]
                repeated = [*loop, Instruction(Op.JUMP, first=-once - 1)]
            else:
                repeated = piece * least + [Instruction(Op.FORK, first=-once, second=1)]
        else:
            optional = most - least
            repeated = piece * least
            for rest in range(optional, 0, -1):
                repeated += [Instruction(Op.FORK, first=1, second=rest * (once + 1)), *piece]
        group.pieces.append(repeated)
        group.repeatable = False

    # -- single characters and classes

    def _escaped(self) -> None:
        if self._position == len(self._pattern):
            raise self._refusal("it ends with a backslash")
        character = self._pattern[self._position]
        if character in _PLACES:
            self._position += 1
            self._add([Instruction(Op.CHECK, place=_PLACES[character])])
        elif character == "Q":
            end = self._pattern.find("\\E", self._position)
            quoted = self._pattern[self._position + 1 : end if end >= 0 else None]
            self._position = end + 2 if end >= 0 else len(self._pattern)
            for literal in quoted:
                self._add_literal(literal)
        elif character == "C":
            self._position += 1
            self._add_class(self._alphabet)
        elif (accepted := self._named_class()) is not None:
            self._add_class(accepted)
        else:
            self._add_literal(self._escaped_character())

    def _named_class(self) -> frozenset[str] | None:
        r"""The class after a backslash (\d, \pL, \P{Greek}), or None if there is none."""
        character = self._pattern[self._position]
        if character.lower() in _PERL:
            self._position += 1
            return self._either(_PERL[character.lower()], negated=character.isupper())
        named = self._match(_UNICODE)
        if named is None:
            if character in "pP":
                raise self._refusal("a class of Unicode characters has no name")
            return None
        kind, caret, name, short = named.groups()
        name = name or short
        if name not in _CATEGORIES and name not in _SCRIPTS and name not in ("Any", "Common"):
            raise self._refusal(f"the class of Unicode characters {name} is not known")
        accepted = frozenset(letter for letter in self._alphabet if _is_of(letter, name))
        return self._either(accepted, negated=(kind == "P") != bool(caret))

    def _either(self, accepted: frozenset[str], *, negated: bool) -> frozenset[str]:
        return self._alphabet - accepted if negated else self._alphabet & accepted

    def _escaped_character(self) -> str:
        character = self._pattern[self._position]
        if character in _ESCAPED:
            self._position += 1
            return _ESCAPED[character]
        if octal := self._match(_OCTAL):
            return chr(int(octal[0], 8))
        if code := self._match(_HEX):
            number = int(code[1] or code[2], 16)
            if number > 0x10FFFF:
                raise self._refusal("a character's number is above 10FFFF")
            return chr(number)
        if character.isascii() and not character.isalnum():
            self._position += 1
            return character
        raise self._refusal(f"\\{character} is not part of RE2's syntax")

    def _bracketed(self) -> frozenset[str]:
        """What stands between [ and ]; the first character may be a ]."""
        pattern = self._pattern
        negated = pattern.startswith("^", self._position)
        self._position += negated
        accepted: set[str] = set()
        first = True
        while first or not pattern.startswith("]", self._position):
            if self._position >= len(pattern):
                raise self._refusal("a bracket is never closed")
            first = False
            accepted |= self._class_item()
        self._position += 1
        folded = _folded(accepted) if self._group.ignore_case else frozenset(accepted)
        return self._alphabet - folded if negated else folded

    def _class_item(self) -> frozenset[str]:
        if posix := self._match(_POSIX_CLASS):
            caret, name = posix.groups()
            if name not in _POSIX:
                raise self._refusal(f"the class [:{name}:] is not known")
            return self._either(_POSIX[name], negated=bool(caret))
        if self._pattern.startswith("\\", self._position) and self._position + 1 < len(self._pattern):
            self._position += 1
            named = self._named_class()
            if named is not None:
                return named
            self._position -= 1
        low = self._class_character()
        pattern, position = self._pattern, self._position
        if not pattern.startswith("-", position) or pattern.startswith("-]", position):
            return frozenset(low) & self._alphabet
        self._position += 1
        high = self._class_character()
        if high < low:
            raise self._refusal(f"the range {low}-{high} is empty")
        return frozenset(character for character in self._alphabet if low <= character <= high)

    def _class_character(self) -> str:
        if self._position >= len(self._pattern):
            raise self._refusal("a bracket is never closed")
        character = self._pattern[self._position]
        self._position += 1
        if character != "\\":
            return character
        if self._position == len(self._pattern):
            raise self._refusal("it ends with a backslash")
        return self._escaped_character()

    # -- the program

    def _add_literal(self, character: str) -> None:
        self._add_class(frozenset(character) & self._alphabet)

    def _add_class(self, accepted: frozenset[str]) -> None:
        if self._group.ignore_case:
            accepted = _folded(accepted)
        self._add([Instruction(Op.TAKE, accepted=accepted)])

    def _add(self, piece: Piece) -> None:
        self._grow(1)
        self._group.pieces.append(piece)
        self._group.repeatable = True

    def _grow(self, count: int) -> None:
        self._length += count
        if self._length > INSTRUCTIONS_MAX:
            raise self._refusal("it is too large once its repetitions are written out")

    def _match(self, form: re.Pattern[str], back: int = 0) -> re.Match[str] | None:
        """Step over what stands here if it has this form, `back` characters before the position."""
        match = form.match(self._pattern, self._position - back)
        if match is not None:
            self._position = match.end()
        return match

    def _refusal(self, reason: str) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"the regular expression {self._pattern[:200]!r} is not valid: {reason} (character {self._position})",
        )


def _folded(accepted: frozenset[str] | set[str]) -> frozenset[str]:
    return frozenset(form for character in accepted for form in (character.lower(), character.upper()))


def _is_of(character: str, name: str) -> bool:
    """Whether a character is of a category or script of Unicode."""
    if name in _CATEGORIES:
        return unicodedata.category(character).startswith(name)
    if name == "Any":
        return True
    if name == "Common":
        return not unicodedata.category(character).startswith("L")
    return unicodedata.name(character, "").startswith(_SCRIPTS[name])
