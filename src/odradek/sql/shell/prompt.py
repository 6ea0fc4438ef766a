"""The prompt: history, completion, several lines, colours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from odradek.model.errors import OdradekError
from odradek.sql.shell.names import KnownNames
from odradek.sql.shell.session import ShellSession
from odradek.sql.shell.splitting import is_complete, shell_word

HELP: Final = """\
Statements end with a semicolon, and may take several lines. The tab key completes names.
  SHOW STREAMS; SHOW TABLES; SHOW TOPICS; SHOW QUERIES; SHOW FUNCTIONS;
  DESCRIBE name;                        columns        PRINT 'topic' FROM BEGINNING LIMIT 3;   records
  SELECT * FROM name EMIT CHANGES;      rows as they come, until Ctrl-C
  SET 'auto.offset.reset'='earliest';   queries begin at the first record
  RUN SCRIPT 'file.sql'; SPOOL 'file';  DEFINE name = 'value';
Words without a semicolon: exit, help, clear, history, version, server."""


class _Names(Completer):
    def __init__(self, names: KnownNames) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        for text, kind, start in self._names.matching(document.text_before_cursor):
            yield Completion(text, start_position=-start, display_meta=kind)


class Prompt:
    """Reads from the terminal until `exit`, Ctrl-D, or the end of the input."""

    def __init__(
        self,
        session: ShellSession,
        names: KnownNames,
        history: Path | None,
        report: Callable[[OdradekError], None],
    ) -> None:
        """`history`: a file; None: in memory. `report` says what is wrong with a statement."""
        self._session = session
        self._names = names
        self._report = report
        self._prompt: PromptSession[str] = PromptSession(
            history=InMemoryHistory() if history is None else FileHistory(str(history)),
            completer=_Names(names),
            complete_while_typing=False,
            lexer=PygmentsLexer(SqlLexer),
            multiline=True,
            key_bindings=_keys(),
            prompt_continuation=lambda width, line, is_wrapped: ">".rjust(width - 1) + " ",
        )

    def run(self) -> None:
        self._names.refresh_soon()
        while True:
            try:
                text = self._prompt.prompt("ksql> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if not text.strip():
                continue
            word = shell_word(text)
            if word is not None:
                if not self._word(*word):
                    return
                continue
            self._session.typed(text)
            try:
                self._session.run(text)
            except OdradekError as error:
                self._report(error)
            except KeyboardInterrupt:
                self._session.say("Interrupted")
            self._names.refresh_soon(text)

    def _word(self, word: str, rest: str) -> bool:
        """False: the shell ends."""
        show = self._session.show
        match word:
            case "exit" | "quit":
                return False
            case "help":
                show(HELP)
            case "clear":
                show("\x1b[2J\x1b[H")
            case "history":
                for entry in reversed(list(self._prompt.history.load_history_strings())):
                    show(entry)
            case "version" | "server":
                self._about_server()
        return True

    def _about_server(self) -> None:
        try:
            info: dict[str, Any] = self._session.client.info()
        except OdradekError as error:
            self._report(error)
            return
        self._session.show(
            f"server {self._session.client.url}, version {info['version']}, service {info['ksqlServiceId']}, Kafka cluster"
            f" {info['kafkaClusterId']}"
        )


def _keys() -> KeyBindings:
    """Enter runs a text that is complete, and begins a new line in one that is not."""
    keys = KeyBindings()

    @keys.add("enter", filter=Condition(lambda: True))
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys
