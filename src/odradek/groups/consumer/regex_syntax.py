"""RE2's syntax, read into a small program that `regex` runs.

Where a match begins and ends is not asked, only whether the whole name matches, so groups capture nothing and greediness makes
no difference. What a class of characters accepts is asked of it for each character, so Unicode costs nothing here.

Not RE2, and refused as it refuses them: references back to a group, looking ahead or behind, possessive and atomic
repetition, conditions, comments. Source: https://github.com/google/re2/wiki/Syntax.

The program grows at its end: a group, a branch, or what is repeated is the part behind a place that was noted. Jumps are
relative, so a part can be repeated as it is. Reading is linear in the pattern, but for what repetitions write out, which counts
against `INSTRUCTIONS_MAX` whether it stays or not, and for the move of a part by one place, at most once for each level.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.groups.consumer.regex_classes import (
    ASCII_CLASSES,
    PERL_CLASSES,
    UNICODE_CLASSES,
    CharacterClass,
    ClassParts,
    NamedClass,
)
from odradek.model.errors import ErrorCode, KafkaError

PATTERN_CHARACTERS_MAX: Final = 32_767
"""The longest pattern: the most characters of a string in Kafka's older format."""
INSTRUCTIONS_MAX: Final = 20_000
"""The most instructions that a pattern may ever add to the program, including those that are removed again."""
REPEAT_MAX: Final = 1000
DEPTH_MAX: Final = 1000


class Op(IntEnum):
    """The kind of an instruction."""

    TAKE = 0
    """Step over one character that `accepted` accepts."""
    FORK = 1
    """Go on at both `first` and `second`."""
    JUMP = 2
    """Go on at `first`."""
    CHECK = 3
    """Go on with the next instruction where `place` holds."""


class AnchorPlace(IntEnum):
    """The position between characters that a CHECK requires."""

    BEGIN = 0
    END = 1
    WORD_BOUNDARY = 2
    NO_WORD_BOUNDARY = 3


class Instruction(NamedTuple):
    op: Op
    accepted: CharacterClass | None = None
    first: int = 0
    second: int = 0
    place: AnchorPlace = AnchorPlace.BEGIN


Program = list[Instruction]

_ESCAPED: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PLACES: Final = {
    "A": AnchorPlace.BEGIN,
    "z": AnchorPlace.END,
    "b": AnchorPlace.WORD_BOUNDARY,
    "B": AnchorPlace.NO_WORD_BOUNDARY,
}
_REPEAT: Final = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_OPENING: Final = re.compile(
    r"\?(?:P?<(?P<name>[A-Za-z0-9_]+)>|(?P<on>[imsU]*)(?:-(?P<off>[imsU]+))?(?P<end>[:)]))"
)
_OCTAL: Final = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_HEX: Final = re.compile(r"x(?:\{([0-9A-Fa-f]{1,8})\}|([0-9A-Fa-f]{2}))")
_UNICODE: Final = re.compile(r"([pP])(?:\{(\^?)(\w+)\}|([A-Za-z]))")
_POSIX_CLASS: Final = re.compile(r"\[:(\^?)(\w+):\]")
_ANY: Final = ClassParts(is_negated=True)
_UNFINISHED_JUMP: Final = Instruction(Op.JUMP)


def parse(pattern: str) -> Program:
    """Returns the program of a pattern. INVALID_REGULAR_EXPRESSION for what RE2 does not accept, and for what grows too
    large."""
    return _Parser(pattern).parse()


@dataclass(slots=True)
class _Group:
    """A group that is being read: its flag, and the places of its parts in the program."""

    ignore_case: bool
    begin: int
    branch_begin: int
    branch_ends: list[int] = field(default_factory=list)
    """The positions of the jumps after its finished branches."""
    repeatable_begin: int | None = None
    """The position of the last part, if a repetition may follow it."""


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        self._program: Program = []
        self._added_count = 0
        self._group = _Group(ignore_case=False, begin=0, branch_begin=0)
        self._outer: list[_Group] = []
        self._names: set[str] = set()
        self._takes: dict[tuple[ClassParts, bool], Instruction] = {}
        """Instructions by the class that they take: equal classes share one, which examines a character once."""
        self._literals: dict[tuple[str, bool], Instruction] = {}

    def parse(self) -> Program:
        pattern = self._pattern
        if len(pattern) > PATTERN_CHARACTERS_MAX:
            raise self._refusal(
                f"it has {len(pattern)} characters, and {PATTERN_CHARACTERS_MAX} are the most: shorten it"
            )
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
        self._join_branches()
        return self._program

    def _item(self, character: str) -> None:
        if character == "(":
            self._open()
        elif character == ")":
            self._close()
        elif character == "|":
            self._end_branch()
        elif character == "[":
            self._add_class(self._bracketed())
        elif character == ".":
            self._add_class(_ANY)
        elif character in "^$":
            self._add(Instruction(Op.CHECK, place=AnchorPlace.BEGIN if character == "^" else AnchorPlace.END))
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
                    self._group.repeatable_begin = None
                    return
        self._outer.append(self._group)
        begin = len(self._program)
        self._group = _Group(ignore_case=ignore_case, begin=begin, branch_begin=begin)

    def _close(self) -> None:
        if not self._outer:
            raise self._refusal("a parenthesis is closed that was never opened")
        self._join_branches()
        begin = self._group.begin
        self._group = self._outer.pop()
        self._group.repeatable_begin = begin

    def _end_branch(self) -> None:
        """Ends a branch before another: forks before this one, and jumps over those that follow after it."""
        self._grow(2)
        group, program = self._group, self._program
        length = len(program) - group.branch_begin
        program.insert(group.branch_begin, Instruction(Op.FORK, first=1, second=length + 2))
        group.branch_ends.append(len(program))
        program.append(_UNFINISHED_JUMP)
        group.branch_begin = len(program)
        group.repeatable_begin = None

    def _join_branches(self) -> None:
        program = self._program
        for place in self._group.branch_ends:
            program[place] = Instruction(Op.JUMP, first=len(program) - place)

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
        begin = self._group.repeatable_begin
        if begin is None:
            raise self._refusal("a repetition follows nothing that can be repeated")
        self._group.repeatable_begin = None
        if self._pattern.startswith("?", self._position):
            self._position += 1  # lazy: no difference when the whole name has to match
        if most is None:
            self._repeat_without_end(begin, least)
        elif most == 0:
            del self._program[begin:]
        else:
            self._repeat_up_to(begin, least, most)

    def _repeat_without_end(self, begin: int, least: int) -> None:
        program = self._program
        once = len(program) - begin
        if least == 0:
            self._grow(2)
            program.insert(begin, Instruction(Op.FORK, first=1, second=once + 2))
            program.append(Instruction(Op.JUMP, first=-once - 1))
        else:
            self._grow((least - 1) * once + 1)
            if least > 1:
                program.extend(program[begin:] * (least - 1))
            program.append(Instruction(Op.FORK, first=-once, second=1))

    def _repeat_up_to(self, begin: int, least: int, most: int) -> None:
        """Repeats the part at `begin`, which stays as the first copy, so that nested repetitions that add nothing copy
        nothing."""
        program = self._program
        once = len(program) - begin
        optional = most - least
        self._grow((most - 1) * once + optional)
        piece = program[begin:] if most > 1 else []
        if least == 0:
            program.insert(begin, Instruction(Op.FORK, first=1, second=optional * (once + 1)))
            optional -= 1
        else:
            program.extend(piece * (least - 1))
        for rest in range(optional, 0, -1):
            program.append(Instruction(Op.FORK, first=1, second=rest * (once + 1)))
            program.extend(piece)

    # -- single characters and classes

    def _escaped(self) -> None:
        if self._position == len(self._pattern):
            raise self._refusal("it ends with a backslash")
        character = self._pattern[self._position]
        if character in _PLACES:
            self._position += 1
            self._add(Instruction(Op.CHECK, place=_PLACES[character]))
        elif character == "Q":
            end = self._pattern.find("\\E", self._position)
            quoted = self._pattern[self._position + 1 : end if end >= 0 else None]
            self._position = end + 2 if end >= 0 else len(self._pattern)
            for literal in quoted:
                self._add_literal(literal)
        elif character == "C":
            self._position += 1
            self._add_class(_ANY)
        elif (named := self._named_class()) is not None:
            self._add_class(ClassParts(named=frozenset([named])))
        else:
            self._add_literal(self._escaped_character())

    def _named_class(self) -> NamedClass | None:
        r"""Returns the class after a backslash (\d, \pL, \P{Greek}), or None if there is none."""
        character = self._pattern[self._position]
        if character.lower() in PERL_CLASSES:
            self._position += 1
            return NamedClass(character.lower(), is_negated=character.isupper())
        match = self._match(_UNICODE)
        if match is None:
            if character in "pP":
                raise self._refusal("a class of Unicode characters has no name")
            return None
        kind, caret, name, short = match.groups()
        name = name or short
        if name not in UNICODE_CLASSES:
            raise self._refusal(f"the class of Unicode characters {name[:50]} is not known")
        return NamedClass(name, is_negated=(kind == "P") != bool(caret))

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

    def _bracketed(self) -> ClassParts:
        """Parses the text between [ and ]; the first character may be a ]."""
        pattern = self._pattern
        is_negated = pattern.startswith("^", self._position)
        self._position += is_negated
        letters: set[str] = set()
        ranges: set[tuple[str, str]] = set()
        named: set[NamedClass] = set()
        first = True
        while first or not pattern.startswith("]", self._position):
            if self._position >= len(pattern):
                raise self._refusal("a bracket is never closed")
            first = False
            part = self._class_item()
            if isinstance(part, NamedClass):
                named.add(part)
            elif isinstance(part, str):
                letters.add(part)
            else:
                ranges.add(part)
        self._position += 1
        return ClassParts(frozenset(letters), frozenset(ranges), frozenset(named), is_negated=is_negated)

    def _class_item(self) -> str | tuple[str, str] | NamedClass:
        """Parses a character, the ends of a range, or a class with a name."""
        if posix := self._match(_POSIX_CLASS):
            caret, name = posix.groups()
            if name not in ASCII_CLASSES:
                raise self._refusal(f"the class [:{name[:50]}:] is not known")
            return NamedClass(name, is_negated=bool(caret))
        if self._pattern.startswith("\\", self._position) and self._position + 1 < len(self._pattern):
            self._position += 1
            named = self._named_class()
            if named is not None:
                return named
            self._position -= 1
        low = self._class_character()
        pattern, position = self._pattern, self._position
        if not pattern.startswith("-", position) or pattern.startswith("-]", position):
            return low
        self._position += 1
        high = self._class_character()
        if high < low:
            raise self._refusal(f"the range {low}-{high} is empty")
        return low, high

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
        key = (character, self._group.ignore_case)
        take = self._literals.get(key)
        if take is None:
            take = self._literals[key] = self._taking(ClassParts(letters=frozenset(character)))
        self._add(take)

    def _add_class(self, parts: ClassParts) -> None:
        self._add(self._taking(parts))

    def _taking(self, parts: ClassParts) -> Instruction:
        key = (parts, self._group.ignore_case)
        take = self._takes.get(key)
        if take is None:
            accepted = CharacterClass(parts, ignore_case=self._group.ignore_case)
            take = self._takes[key] = Instruction(Op.TAKE, accepted=accepted)
        return take

    def _add(self, instruction: Instruction) -> None:
        self._grow(1)
        self._group.repeatable_begin = len(self._program)
        self._program.append(instruction)

    def _grow(self, count: int) -> None:
        self._added_count += count
        if self._added_count > INSTRUCTIONS_MAX:
            raise self._refusal(
                f"it is too large once its repetitions are written out: {INSTRUCTIONS_MAX} instructions are the most"
            )

    def _match(self, form: re.Pattern[str], back: int = 0) -> re.Match[str] | None:
        """Steps over the text at `back` characters before the position if it has this form."""
        match = form.match(self._pattern, self._position - back)
        if match is not None:
            self._position = match.end()
        return match

    def _refusal(self, reason: str) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"the regular expression {self._pattern[:200]!r} is not valid: {reason} (character {self._position})",
        )
