"""The prompt: history, completion, several lines, colours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

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
from odradek.sql.shell.splitting import is_complete


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
        """`history`: a file; None: in memory. `report` shows what is wrong with a statement."""
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
        entered = self._prompt.history
        self._session.history = lambda: reversed(list(entered.load_history_strings()))
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
            self._session.typed(text)
            try:
                if not self._session.run(text):
                    return
            except OdradekError as error:
                self._report(error)
            except KeyboardInterrupt:
                self._session.say("Interrupted")
            self._names.refresh_soon(text)


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
