"""The text of the editor as steps: what goes to the server, in which order, and what the console refuses to run. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from odradek.model.errors import OdradekError
from odradek.sql.shell.splitting import ShellStep, bare_statement, statements, step_of

TEXT_CHARS_MAX: Final = 64 << 10
STATEMENTS_MAX: Final = 100
_STATEMENT_SHOWN: Final = 80
_READS: Final = re.compile(r"(?:SELECT|SHOW|LIST|DESCRIBE|EXPLAIN|PRINT)\b", re.I)
"""The first word of statements that change nothing."""
_OF_SHELL: Final = frozenset({"word", "script", "spool"})
"""Steps that the shell carries out on its own machine."""


class EditorRefusal(OdradekError):
    """A text that the console does not run. `key`: the reason, a text of the catalogue below `sql.refused`."""

    def __init__(self, key: str, **values: object) -> None:
        super().__init__(f"{key}: {values}")
        self.key: Final = key
        self.values: Final = values


@dataclass(frozen=True, slots=True, kw_only=True)
class EditorRun:
    """What a text asks for: statements in their order, then at most one query, with the properties that hold for it."""

    steps: tuple[ShellStep, ...] = ()
    """Statements, and changes of properties and variables between them."""
    query: str = ""
    """SELECT or PRINT; empty where the text has none."""


@dataclass(slots=True)
class RunSettings:
    """The properties and variables of a text, while its statements run."""

    properties: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def apply(self, step: ShellStep) -> bool:
        """Applies SET, UNSET, DEFINE and UNDEFINE. Returns False for a step that goes to the server."""
        match step.kind:
            case "set":
                self.properties[step.arguments[0]] = step.arguments[1]
            case "unset":
                self.properties.pop(step.arguments[0], None)
            case "define":
                self.variables[step.arguments[0]] = step.arguments[1]
            case "undefine":
                self.variables.pop(step.arguments[0], None)
            case _:
                return False
        return True


def editor_run(text: str, *, read_only: bool) -> EditorRun:
    """Returns the steps of a text. Raises EditorRefusal. `read_only`: only what reads may run."""
    if len(text) > TEXT_CHARS_MAX:
        raise EditorRefusal("too_long", count=TEXT_CHARS_MAX)
    steps: list[ShellStep] = []
    query = ""
    for statement in statements(text):
        if query:
            raise EditorRefusal("after_query", statement=shown_statement(statement))
        if len(steps) >= STATEMENTS_MAX:
            raise EditorRefusal("too_many", count=STATEMENTS_MAX)
        step = step_of(statement)
        if step.kind in _OF_SHELL:
            raise EditorRefusal("of_shell", statement=shown_statement(statement))
        if read_only:
            _check_reads(step)
        if step.kind == "query":
            query = step.text
        else:
            steps.append(step)
    if not steps and not query:
        raise EditorRefusal("empty")
    return EditorRun(steps=tuple(steps), query=query)


def _check_reads(step: ShellStep) -> None:
    """Raises EditorRefusal for what may change something.

    The server cuts a text into statements, too, and replaces variables before that. So neither a semicolon inside of a
    statement nor a variable gets to it: it could read them otherwise than the console does.
    """
    if step.kind in ("set", "unset"):
        return
    bare = bare_statement(step.text)
    if step.kind in ("define", "undefine") or _READS.match(bare) is None:
        raise EditorRefusal("read_only", statement=shown_statement(step.text))
    if ";" in step.text.rstrip().removesuffix(";"):
        raise EditorRefusal("semicolon", statement=shown_statement(step.text))


def shown_statement(statement: str) -> str:
    """Returns the beginning of a statement on one line."""
    bare = " ".join(bare_statement(statement)[: 2 * _STATEMENT_SHOWN].split())
    return bare if len(bare) <= _STATEMENT_SHOWN else bare[: _STATEMENT_SHOWN - 1] + "…"
