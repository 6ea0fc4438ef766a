"""The shell without its prompt: runs statements one after another, keeps what SET and DEFINE say, and shows what comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final

from odradek.model.errors import ConfigError, OdradekError
from odradek.model.safe_text import safe_json
from odradek.sql.rest_client import RestClient, ServerRefusal
from odradek.sql.shell.rendering import LiveTable, TextTable, rendered
from odradek.sql.shell.splitting import ShellStep, placed_statements, step_of

_SCRIPTS_DEEP_MAX: Final = 16


@dataclass(slots=True)
class ShellSession:
    """`show(line)` prints; `width()` says how wide the terminal is. `as_json`: a JSON object a line.

    `waiting(what)` is entered while nothing can be shown yet: a statement runs, or no row has come.
    """

    client: RestClient
    show: Callable[[str], None]
    width: Callable[[], int] = lambda: 100
    as_json: bool = False
    waiting: Callable[[str], AbstractContextManager[object]] = nullcontext
    properties: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    _spool: IO[str] | None = None
    _depth: int = 0

    def run(self, text: str, place: str = "") -> None:
        """All statements of a text. Raises what the first that is wrong is refused with. `place`: of a script, for errors."""
        if self._depth >= _SCRIPTS_DEEP_MAX:
            raise ConfigError(f"{place}: scripts that run scripts: no more than {_SCRIPTS_DEEP_MAX} deep")
        for line_number, statement in placed_statements(text):
            try:
                self._run(step_of(statement))
            except ServerRefusal as refusal:
                if not place:
                    raise
                message = f"{place}, the statement at line {line_number}:\n{refusal.message}"
                raise ServerRefusal(refusal.code, message, refusal.entities) from None

    def _run(self, step: ShellStep) -> None:
        match step.kind:
            case "query":
                self._query(step.text)
            case "statement":
                self._statement(step.text)
            case "set":
                name, value = step.arguments
                self.properties[name] = value
                self.say(f"Successfully changed local property '{name}' to '{value}'.")
            case "unset":
                before = self.properties.pop(step.arguments[0], None)
                self.say(
                    f"Cannot unset local property '{step.arguments[0]}': it was not set."
                    if before is None
                    else f"Successfully unset local property '{step.arguments[0]}' (value was '{before}')."
                )
            case "define":
                self.variables[step.arguments[0]] = step.arguments[1]
            case "undefine":
                if self.variables.pop(step.arguments[0], None) is None:
                    self.say(f"Cannot find variable: {step.arguments[0]}")
            case "variables":
                rows = [{"name": name, "value": value} for name, value in sorted(self.variables.items())]
                self._entity({"@type": "variables", "variables": rows})
            case "script":
                self._script(Path(step.arguments[0]))
            case "spool":
                self._set_spool(step.arguments[0])

    def _statement(self, text: str) -> None:
        entities: list[dict[str, Any]] = []
        try:
            with self.waiting("the server's answer"):
                entities = self.client.execute(
                    text if text.rstrip().endswith(";") else text + ";",
                    properties=self.properties,
                    variables=self.variables,
                )
        except ServerRefusal as refusal:
            entities = refusal.entities
            raise
        finally:
            for entity in entities:
                self._entity(entity)

    def _query(self, text: str) -> None:
        """Ctrl-C ends it, and not the shell."""
        with self.waiting("the server's answer"):
            opened = self.client.query(text, properties=self.properties, variables=self.variables)
        with opened as query:
            names = tuple(name for name, _ in query.columns)
            live = LiveTable(names, self.width())
            if not self.as_json and names:
                self._lines(live.head())
            count = 0
            try:
                rows = iter(query)
                with self.waiting("the first row"):
                    first = next(rows, None)
                for row in chain([] if first is None else [first], rows):
                    count += 1
                    if self.as_json:
                        self._line(safe_json(dict(zip(names, row, strict=True))))
                    else:
                        self._lines(live.row(row))
            except KeyboardInterrupt:
                if query.query_id is not None:
                    with suppress(OdradekError):
                        self.client.close_query(query.query_id)
                self.say("Query terminated")
            else:
                self.say("Query Completed" if query.query_id else f"Query Completed, rows: {count}")

    def _entity(self, entity: dict[str, Any]) -> None:
        if self.as_json:
            self._line(safe_json(entity))
            return
        self._line("")
        for part in rendered(entity):
            self._lines(part.lines(self.width()) if isinstance(part, TextTable) else [part])

    def _script(self, path: Path) -> None:
        try:
            text = path.expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"RUN SCRIPT: {path} cannot be read: {error}") from error
        self._depth += 1
        try:
            self.run(text, str(path))
        finally:
            self._depth -= 1

    def _set_spool(self, path: str) -> None:
        self.close()
        if path:
            try:
                self._spool = Path(path).expanduser().open("a", encoding="utf-8")
            except OSError as error:
                raise ConfigError(f"SPOOL: {path} cannot be written: {error.strerror}") from error
            self.say(f"Session will be spooled to {path}")

    def say(self, remark: str) -> None:
        """A sentence that is no result."""
        if not self.as_json:
            self._line(remark)

    def typed(self, text: str) -> None:
        """What the person typed, for the spool."""
        if self._spool is not None:
            self._spool.write(f"ksql> {text}\n")

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._line(line)

    def _line(self, line: str) -> None:
        self.show(line)
        if self._spool is not None:
            self._spool.write(line + "\n")
            self._spool.flush()

    def close(self) -> None:
        """End the spool. Idempotent."""
        if self._spool is not None:
            self._spool.close()
            self._spool = None
