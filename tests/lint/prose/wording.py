"""A lint rule: plain words in prose. `python -m tests.lint.prose.wording [ROOT]`.

English is a second language for many readers of the code, the documents and the errors. `PLAIN` names words and phrases that
are hard for them, and what to write instead. The rule reads comments and strings of Python files, Markdown files and the
Makefile. Text between backticks is a name; a string of one word is data, and so is a word in single quotes.

The name of a test is a sentence, too.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FOLDERS: Final = ("src", "tests", "tools", "examples", "benchmarks", "docs")
RECORDED: Final = (
    "tests/differential/",
    "tests/lint/",
)
"""Data that names members or topics, and this rule's own words."""
PLAIN: Final = {
    "anew": "again, or the verb: rebuild, restart, create again",
    "nobody": "no one, no client, no broker, nothing",
    "somebody": "someone, or better who it is: another client, a person",
    "anybody": "anyone, or better who it is: any client",
    "everybody": "everyone, or better who it is: all members",
    "whoever": "the one that is meant: the client, the caller, the waiter",
    "whomever": "the one that is meant",
    "who waits": "waiters",
    "those who wait": "waiters",
    "all who wait": "all waiters",
    "those who waited": "waiters",
    "in vain": "for nothing; has no effect; for ever",
    "befall": "happen to",
    "befalls": "happens to",
    "hence": "so",
    "thus": "so",
    "lest": "so that ... not",
    "thereof": "of it",
    "therein": "in it",
    "hitherto": "until now",
    "is to become": "becomes, must become; must happen to",
    "of one that": "of a broker, a log, a record that",
    "of one who": "of a client, a member that",
    "for one who": "for a client, a member that",
    "and one who": "and a client, a process that",
    "told": "hears, learns, gets; is reported; is distinguished; is called",
    "what came of": "the outcome of, the result of",
    "what comes of": "the outcome of; what happens",
    "what must come of": "the outcome that it must have",
    "what may come of": "the outcomes that it may have",
    "what became of": "the outcome of",
    "what becomes of": "how it is handled; its next state; the decision about",
    "what may become of": "which changes are allowed",
    "whatever comes of": "whatever happens; whatever it does",
    "whatever became of": "whatever happened to",
    "whatever becomes of": "whatever happens to",
    "of its own accord": "by itself",
    "of their own accord": "by themselves",
}
_TEST_NAME: Final = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
_PHRASES: Final = "|".join(PLAIN).replace(" ", r"\s+")
"""A phrase may go on in the next line."""
_WORDS: Final = re.compile(rf"(?<![\w'-])({_PHRASES})(?![\w'-])", re.IGNORECASE)
_NAMES: Final = re.compile(r"`[^`\n]*`")
_PYTHON_TEXT: Final = frozenset(
    {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
)


def findings(root: Path) -> Iterator[str]:
    """One line for each word that breaks the rule."""
    for path in _files(root):
        where = path.relative_to(root)
        if where.as_posix().startswith(RECORDED):
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            yield from (f"{where}:{finding}" for finding in _in_test_names(text))
        if not _WORDS.search(text):
            continue  # a search is quick, and to read tokens is not
        pieces = _python_text(text) if path.suffix == ".py" else [(1, text)]
        for line, piece in pieces:
            for match in _WORDS.finditer(_NAMES.sub("``", piece)):
                word = " ".join(match[1].lower().split())
                yield f"{where}:{line + match.string.count(chr(10), 0, match.start())}: {word!r}: write {PLAIN[word]}"


def _in_test_names(text: str) -> Iterator[str]:
    for match in _TEST_NAME.finditer(text):
        line = text.count("\n", 0, match.start(1)) + 1
        for word in PLAIN.keys() & set(match[1].split("_")):
            yield f"{line}: {word!r} in the name of a test: write {PLAIN[word]}"


def _files(root: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted(path for path in (root / folder).rglob("*") if path.suffix in (".py", ".md"))
    yield from sorted(path for path in root.iterdir() if path.suffix == ".md" or path.name == "Makefile")


def _python_text(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _PYTHON_TEXT and len(token.string.split()) > 1:
            yield token.start[0], token.string


def main() -> int:
    lines = list(findings(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
