"""The shell without its prompt: runs statements one after another, keeps the values of SET and DEFINE, and shows results."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from odradek.model.aliases import Json
from odradek.model.errors import ConfigError, OdradekError
from odradek.model.lazy import lazy
from odradek.model.safe_text import safe_json
from odradek.sql.rest_client import RestClient, ServerRefusal
from odradek.sql.shell.rendering import TextTable, rendered
from odradek.sql.shell.rows import OutputFormat, csv_line, row_lines
from odradek.sql.shell.splitting import ShellStep, placed_statements, step_of

if TYPE_CHECKING:
    from odradek.sql.shell import plan_picture
else:
    plan_picture = lazy("odradek.sql.shell.plan_picture")

_SCRIPTS_DEEP_MAX: Final = 16
_ROWS_TOGETHER_MAX: Final = 1_000
"""Rows of an answer that ends are drawn together, at most this many, in columns that fit all of them."""
_NAME: Final = re.compile(r"[A-Za-z_]\w*\Z")

HELP: Final = """\
Statements end with a semicolon, and may take several lines. The tab key completes names.
  SHOW STREAMS; SHOW TABLES; SHOW TOPICS; SHOW QUERIES; SHOW FUNCTIONS;
  DESCRIBE name; DESCRIBE name EXTENDED;   columns; statistics
  PRINT 'topic' FROM BEGINNING LIMIT 3;    records
  SELECT * FROM name EMIT CHANGES;         rows as they come, until Ctrl-C
  SET 'auto.offset.reset'='earliest';      queries begin at the first record
  EXPLAIN name --picture 'plan.svg';       the plan of a query; --picture draws it
  RUN SCRIPT 'file.sql'; SPOOL 'file'; SPOOL OFF; DEFINE name = 'value';
Words without a semicolon, also with a backslash: exit (quit, \\q), help (\\?), clear, history, version, server, timing."""


@dataclass(slots=True)
class ShellSession:
    """A session of the shell: statements in, lines out.

    `show(line)` prints a line of a result; `remark(line)` prints a sentence that is none, where `output` is for programs.

    `width()` returns the terminal's width. `waiting(what)` is entered while nothing can be shown yet: a statement runs, or no
    row has come. `history()` returns what was typed.
    """

    client: RestClient
    show: Callable[[str], None]
    remark: Callable[[str], None] = lambda line: None
    width: Callable[[], int] = lambda: 100
    output: OutputFormat = "table"
    waiting: Callable[[str], AbstractContextManager[object]] = nullcontext
    history: Callable[[], Iterable[str]] = tuple
    timings: bool = False
    """The shell prints how long each statement took."""
    picture: Path | None = None
    """The file for pictures of EXPLAIN that name none; without it, EXPLAIN draws only with --picture."""
    properties: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    _spool: IO[str] | None = None
    _depth: int = 0

    def run(self, text: str, origin: str = "") -> bool:
        """Runs all statements of a text. False: one of them is `exit`. `place`: the script of the text, for errors.

        Raises the refusal of the first statement that is wrong.
        """
        if self._depth >= _SCRIPTS_DEEP_MAX:
            raise ConfigError(f"{origin}: scripts that run scripts: at most {_SCRIPTS_DEEP_MAX} deep")
        for line_number, statement in placed_statements(text):
            step = step_of(statement)
            try:
                if step.kind == "word" and step.arguments[0] == "exit":
                    return False
                if step.kind == "script":
                    if not self._script(Path(step.arguments[0])):
                        return False
                else:
                    self._run(step)
            except ServerRefusal as refusal:
                if not origin:
                    raise
                message = f"{origin}, the statement at line {line_number}:\n{refusal.message}"
                raise ServerRefusal(refusal.code, message, refusal.entities) from None
        return True

    def _run(self, step: ShellStep) -> None:
        match step.kind:
            case "query":
                with self._timed():
                    self._query(step.text)
            case "statement":
                with self._timed():
                    self._statement(step.text, self._picture_of(step.text))
            case "picture":
                path = step.arguments[0]
                self._statement(step.text, Path(path) if path else self.picture or _picture_name(step.text))
            case "word":
                self._word(*step.arguments)
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
            case "spool":
                self._set_spool(step.arguments[0])

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began_s = time.perf_counter()
        yield
        if self.timings:
            self.say(f"Time: {time.perf_counter() - began_s:.3f} s")

    def _word(self, word: str, rest: str) -> None:
        match word:
            case "help":
                self.say(HELP)
            case "clear":
                self.show("\x1b[2J\x1b[H")
            case "history":
                self._lines(self.history())
            case "timing":
                self.timings = {"on": True, "off": False}.get(rest.lower(), not self.timings)
                self.say(f"Timing is {'on' if self.timings else 'off'}.")
            case "version" | "server":
                info = self.client.info()
                self.say(
                    f"server {self.client.url}, version {info['version']}, service {info['ksqlServiceId']}, Kafka cluster"
                    f" {info['kafkaClusterId']}"
                )

    def _picture_of(self, text: str) -> Path | None:
        return self.picture if text.lstrip()[:7].upper() == "EXPLAIN" else None

    def _statement(self, text: str, picture: Path | None = None) -> None:
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
                if picture is not None and "queryDescription" in entity:
                    self._draw(entity["queryDescription"], picture)

    def _query(self, text: str) -> None:
        """Runs a query. Ctrl-C ends the query, and not the shell."""
        with self.waiting("the server's answer"):
            opened = self.client.query(text, properties=self.properties, variables=self.variables)
        with opened as query:
            is_print = text.lstrip()[:5].upper() == "PRINT"
            lines = row_lines(self.output, query.columns, self.width, is_print=is_print)
            count, gathered = 0, list[list[Json]]()
            together_max = _ROWS_TOGETHER_MAX if query.query_id is None else 1
            try:
                rows = iter(query)
                with self.waiting("the first row"):
                    gathered += islice(rows, 1)
                while gathered:
                    for row in islice(rows, together_max - len(gathered)):
                        gathered.append(row)
                    count += len(gathered)
                    drawn, gathered = gathered, []
                    self._lines(lines.batch(drawn))
                    gathered += islice(rows, 1)
            except KeyboardInterrupt:
                if query.query_id is not None:
                    with suppress(OdradekError):
                        self.client.close_query(query.query_id)
                self._lines(lines.batch(gathered) if gathered else lines.end())
                self.say("Query terminated")
            except OdradekError:
                self._lines(lines.batch(gathered) if gathered else lines.end())
                raise
            else:
                self._lines(lines.end())
                self.say("Query Completed" if query.query_id else f"Query Completed, rows: {count}")

    def _entity(self, entity: dict[str, Any]) -> None:
        if self.output == "json":
            self._line(safe_json(entity))
            return
        self.say("", empty=True)
        for part in rendered(entity):
            if not isinstance(part, TextTable):
                self.say(part)
            elif self.output == "csv":
                self._lines(map(csv_line, (part.columns, *part.rows)))
            else:
                self._lines(part.lines(self.width()))

    def _draw(self, description: dict[str, Any], path: Path) -> None:
        picture = plan_picture.svg(description.get("id") or "query", description.get("executionPlan", ""))
        try:
            path.expanduser().write_text(picture, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"EXPLAIN --picture: {path} cannot be written: {error.strerror}") from error
        self.say(f"The picture of the plan is in {path}.")

    def _script(self, path: Path) -> bool:
        try:
            text = path.expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"RUN SCRIPT: {path} cannot be read: {error}") from error
        self._depth += 1
        try:
            return self.run(text, str(path))
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

    def say(self, sentence: str, *, empty: bool = False) -> None:
        """Shows a sentence that is no result. `empty`: it only parts what people read."""
        if self.output == "table":
            self._line(sentence)
        elif not empty:
            self.remark(sentence)

    def typed(self, text: str) -> None:
        """Notes what the user typed, for the spool."""
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
        """Ends the spool. Idempotent."""
        if self._spool is not None:
            self._spool.close()
            self._spool = None


def _picture_name(text: str) -> Path:
    """Returns the file for the picture of a query: its name, or plan.svg."""
    name = text.removesuffix(";").split()[-1].strip("`")
    is_name = _NAME.match(name) is not None and len(text.split()) <= 2
    return Path(f"{name}.svg" if is_name else "plan.svg")
