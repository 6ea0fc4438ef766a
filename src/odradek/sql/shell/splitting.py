"""Text that a person types, cut into statements; what the shell does itself, and what it leaves to the server. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

_PICTURE_OPTION: Final = r"--picture\b(?:[ \t]*=?[ \t]*'((?:[^']|'')*)')?"
_SKIPPED: Final = re.compile(
    rf"\bEXPLAIN\b[^;'\"`\n-]*{_PICTURE_OPTION}".replace("((?:", "(?:(?:")
    + r"|'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|\$\$.*?\$\$|(;)",
    re.DOTALL | re.I,
)
_OPEN: Final = re.compile(r"'(?:[^']|'')*\Z|/\*(?:(?!\*/).)*\Z|\$\$(?:(?!\$\$).)*\Z|`[^`]*\Z", re.DOTALL)
_COMMENT: Final = re.compile(r"\s*(?:--[^\n]*(?:\n|\Z)|/\*.*?\*/)", re.DOTALL)
_WORDS: Final = r"(?:(\\?(?:exit|quit|help|clear|history|version|server|timing)\b|\\[qh]\b|\\?\?))"
"""The shell's own words: the words of ksqlDB, and the same with a backslash, as in other shells."""
_OF_SHELL: Final = re.compile(rf"\s*{_WORDS}\s*(.*?)\s*;?\s*\Z", re.I | re.S)
_WORD_LINE: Final = re.compile(rf"\s*{_WORDS}(?:[ \t]+(?:on|off))?[ \t]*;?[ \t]*(?:\r?\n|\Z)", re.I)
_SHORT_WORDS: Final = {"?": "help", "h": "help", "q": "exit", "quit": "exit"}
_QUOTED: Final = r"'((?:[^']|'')*)'"
_SET: Final = re.compile(rf"SET\s+{_QUOTED}\s*=\s*{_QUOTED}\s*\Z", re.I)
_UNSET: Final = re.compile(rf"UNSET\s+{_QUOTED}\s*\Z", re.I)
_DEFINE: Final = re.compile(rf"DEFINE\s+([A-Za-z_]\w*)\s*=\s*{_QUOTED}\s*\Z", re.I)
_UNDEFINE: Final = re.compile(r"UNDEFINE\s+([A-Za-z_]\w*)\s*\Z", re.I)
_SCRIPT: Final = re.compile(rf"RUN\s+SCRIPT\s+{_QUOTED}\s*\Z", re.I)
_SPOOL: Final = re.compile(rf"SPOOL\s+(?:{_QUOTED}|(OFF))\s*\Z", re.I)
_PICTURE: Final = re.compile(rf"(EXPLAIN\b[^;'\"`\n-]*?)\s*{_PICTURE_OPTION}\s*(.*)\Z", re.I | re.S)
_VARIABLES: Final = re.compile(r"(?:SHOW|LIST)\s+VARIABLES\s*\Z", re.I)

StepKind: TypeAlias = Literal[
    "statement",
    "query",
    "set",
    "unset",
    "define",
    "undefine",
    "script",
    "spool",
    "variables",
    "picture",
    "word",
]


@dataclass(frozen=True, slots=True)
class ShellStep:
    """A part of the shell's input: a statement, or a command of the shell.

    `arguments`: of what the shell does itself.
    """

    kind: StepKind
    text: str
    arguments: tuple[str, ...] = ()


def statements(text: str) -> Iterator[str]:
    """Returns the statements, each with its semicolon if it has one, without empty ones."""
    return (statement for _, statement in placed_statements(text))


def placed_statements(text: str) -> Iterator[tuple[int, str]]:
    """Yields `statements`, each with the number of its first line, from 1. Comments before it do not count."""
    start = 0
    while start < len(text):
        word = _WORD_LINE.match(text, _first_index(text, start, len(text)))
        end = _end_of_statement(text, start) if word is None else word.end()
        whole = text[start:end]
        if bare_statement(whole).rstrip(";").strip():
            yield text.count("\n", 0, _first_index(text, start, end)) + 1, whole.strip()
        start = end


def _end_of_statement(text: str, start: int) -> int:
    """Returns the index after a statement's semicolon, or the end of the text."""
    return next((match.end() for match in _SKIPPED.finditer(text, start) if match[1]), len(text))


def _first_index(text: str, start: int, end: int) -> int:
    """Returns the first index after spaces and comments."""
    while (match := _COMMENT.match(text, start, end)) is not None:
        start = match.end()
    return start + len(text[start:end]) - len(text[start:end].lstrip())


def bare_statement(text: str) -> str:
    """Returns a statement without the comments before it."""
    while (match := _COMMENT.match(text)) is not None:
        text = text[match.end() :]
    return text.strip()


def is_complete(text: str) -> bool:
    """Tells whether Enter runs the text: it is empty, a word for the shell, or its last statement has its semicolon."""
    if not text.strip() or shell_word(text) is not None:
        return True
    if _OPEN.search(_SKIPPED.sub("", text)):
        return False
    return bare_statement(text.rstrip()).endswith(";") and not _OPEN.search(_SKIPPED.sub("", text))


def shell_word(text: str) -> tuple[str, str] | None:
    """Returns the shell's word (`exit`, `\\?`, `help topic`, …) in its long form, and the text after it."""
    match = _OF_SHELL.match(text)
    if match is None:
        return None
    word = match[1].lower().removeprefix("\\")
    return _SHORT_WORDS.get(word, word), match[2]


def step_of(statement: str) -> ShellStep:
    """Returns the step that one statement asks for."""
    text = bare_statement(statement).rstrip().removesuffix(";").rstrip()
    word = shell_word(text)
    if word is not None:
        return ShellStep("word", statement, word)
    picture = _PICTURE.match(text)
    if picture is not None:
        before, path, rest = picture.groups()
        return ShellStep("picture", f"{before} {rest}".strip() + ";", ((path or "").replace("''", "'"),))
    for kind, pattern in _BY_SHELL.items():
        match = pattern.match(text)
        if match is not None:
            arguments = tuple((group or "").replace("''", "'") for group in match.groups())
            return ShellStep(kind, statement, arguments)
    first = text.split(None, 1)[0].upper() if text else ""
    return ShellStep("query" if first in ("SELECT", "PRINT") else "statement", statement)


_BY_SHELL: Final[dict[StepKind, re.Pattern[str]]] = {
    "set": _SET,
    "unset": _UNSET,
    "define": _DEFINE,
    "undefine": _UNDEFINE,
    "script": _SCRIPT,
    "spool": _SPOOL,
    "variables": _VARIABLES,
}
