"""Statements that a console with masks does not run. Pure.

SQL can rename, compute and copy a field, so no rule holds for its rows.

A statement passes if it names neither a topic that a rule is about nor a source of such a topic. What is named is not parsed: a
name anywhere in the text counts, also in a comment or a literal, so no way to quote it gets past.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from odradek.console.records.masking import RecordMasks
from odradek.console.sql.editor_text import EditorRefusal, shown_statement
from odradek.sql.shell.splitting import bare_statement

SOURCES: Final = "SHOW STREAMS; SHOW TABLES;"
_SHOWS_NO_ROWS: Final = re.compile(r"(?:SHOW|LIST|DESCRIBE|EXPLAIN|DROP|TERMINATE|PAUSE|RESUME)\b", re.I)
_DISGUISE: Final = re.compile(r"\\|\$\{|\bu&", re.I)
"""Escapes and variables: a name could be written with them so that the text does not contain it."""
_WORD: Final = re.compile(r"[A-Za-z0-9._-]+")


def check_unmasked(text: str, masks: RecordMasks, sources: Iterable[Mapping[str, object]]) -> None:
    """Raises EditorRefusal if rows of a masked topic could pass. `sources`: streams and tables, with `name` and `topic`."""
    bare = bare_statement(text)
    if _SHOWS_NO_ROWS.match(bare) is not None and ";" not in bare.rstrip().removesuffix(";"):
        return
    if _DISGUISE.search(text) is not None:
        raise EditorRefusal("disguised", statement=shown_statement(text))
    for word in _WORD.findall(text):
        for part in (word, *word.split("--"), *word.split(".")):
            if masks.hides(part):
                raise EditorRefusal("masked", name=part, statement=shown_statement(text))
    lowered = text.replace("``", "`").replace('""', '"').lower()
    for source in sources:
        name = str(source.get("name", ""))
        if masks.hides(str(source.get("topic", ""))) and name.lower() in lowered:
            raise EditorRefusal("masked", name=name, statement=shown_statement(text))
