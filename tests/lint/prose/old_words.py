"""A lint rule: old-fashioned words in docstrings and comments. `python -m tests.lint.prose.old_words [ROOT] [--list]`.

The rule counts phrases that are correct English and that engineers no longer write: where something "stands", what "lies
behind", "those of a topic", what "is to be" done. One of them does no harm, so none is refused; many make a text hard to read
and to search. Eight projects in Python (starlette, sqlglot, pyiceberg, aiokafka, deltalake, rich, h11, hypothesis) have 2 to 12
of them in 10,000 words. `python -m tests.lint.prose.old_words --list` shows where they are.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

SHARE_MAX: Final = 4.0
"""Old words in 10,000."""
_PHRASES: Final = (
    r"lie|lies|lay|lying|lain",
    r"(?:stand|stands|stood|standing)(?!-in|ard|alone| alone)",
    r"behind|besides?|ought|shall|upon|till|amongst|whilst|whence|wherein|whereof|whereupon|thereby|thereupon",
    r"hereby|herein|henceforth|heretofore|forthwith|beforehand|naught|aught|albeit|nay|ere",
    r"so (?:many|much|few|long as)",
    r"(?:that|those) of",
    r"(?:is|are|was|were|has|have|had) to be",
    r"(?:is|are) to (?:have|stay|go|come|begin|end|write|read|send|keep|hold)",
    r"for want of|in want of|as yet|of old|be it|were it|had it|but for|for ever|no more than|as it were|save for",
    r"(?:he|she|one|those) who|that which|such as are|(?:is|are) come|(?:is|are|has|have) gone",
    r"goes on|went on|the like|at hand|at the hand|in the way of|in (?:its|their) stead|makes? do|all the same",
)
_OLD: Final = re.compile(rf"\b(?:{'|'.join(_PHRASES)})\b".replace(" ", r"\s+"), re.IGNORECASE)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]*")
_NAME: Final = re.compile(r"`[^`\n]*`")


class Share(NamedTuple):
    """The words of a tree's prose, and where old ones are: `path:line: word`."""

    words: int
    old: list[str]

    @property
    def in_ten_thousand(self) -> float:
        return 1e4 * len(self.old) / max(self.words, 1)


def share(root: Path) -> Share:
    """Counts docstrings, notes under fields and comments of all Python files. Text between backticks is a name."""
    words, old = 0, []
    for path in sorted(root.rglob("*.py")):
        for line, text in _prose(path.read_text(encoding="utf-8")):
            plain = _NAME.sub(lambda name: " " * len(name[0]), text)
            words += len(_WORD.findall(plain))
            for match in _OLD.finditer(plain):
                at = line + plain[: match.start()].count("\n")
                old.append(f"{path.relative_to(root)}:{at}: {' '.join(match[0].split())}")
    return Share(words, old)


def _prose(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def main(arguments: Sequence[str] = ()) -> int:
    """Writes the share, and with `--list` each old word. Returns 1 if there are too many."""
    roots = [word for word in arguments if word != "--list"]
    counted = share(Path(roots[0] if roots else "src/odradek"))
    too_many = counted.in_ten_thousand > SHARE_MAX
    if too_many or "--list" in arguments:
        sys.stdout.writelines(f"{line}\n" for line in counted.old)
    if too_many or arguments:
        sys.stdout.write(
            f"{len(counted.old)} old words in {counted.words:,}: {counted.in_ten_thousand:.1f} in 10,000\n"
        )
    return int(too_many)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["src/odradek"]))
