"""Text of strangers is safe in tables, lines, JSON, logs and audit lines; and no command prints past the one place."""

from __future__ import annotations

import ast
import base64
import io
import json
import logging
import unicodedata
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.cli import output
from odradek.cli.audit import search
from odradek.cli.records.output import Layout, formatter
from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.model.safe_text import safe_bytes, safe_json, safe_line, safe_lines
from odradek.sql.shell.rendering import cell
from odradek.telemetry import events

TEXTS = st.text(st.characters(codec=None)) | st.text(
    st.sampled_from("a \n\r\t\x1b\x07\x7f\x85\x9b\u202e\u2066\u2028\u200b\ufeff\ud800\U000e0041")
)


def unsafe(text: str, allowed: str = "") -> list[str]:
    return [
        character
        for character in text
        if character not in allowed
        and (
            unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
            or character in "\u202e\u2066\u200b\ufeff"
        )
    ]


@given(TEXTS)
@example("a\nforged  Dead  consumer\x1b[1A")
def test_text_has_no_controls_and_one_line(text: str) -> None:
    line = safe_line(text)
    assert unsafe(line) == []
    assert unsafe(safe_lines(text), "\n") == []
    assert safe_lines(text).count("\n") == text.count("\n")
    assert safe_line(line) == line
    if not unsafe(text) and text.isascii():
        assert line == text
    assert unsafe(cell({text: [text]})) == []
    line.encode()


@given(
    st.recursive(
        TEXTS | st.none() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)
    )
)
def test_json_keeps_its_meaning(value: Any) -> None:
    for indent in (None, 2):
        shown = safe_json(value, indent=indent)
        assert unsafe(shown, "\n") == []
        assert json.loads(shown) == value
    assert "\n" not in safe_json(value)


@given(st.lists(st.tuples(TEXTS, st.integers(), TEXTS), min_size=1, max_size=6))
def test_a_table_has_a_line_for_each_row(rows: list[tuple[str, int, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        out = io.StringIO()
        patch.setattr("sys.stdout", out)
        output.print_table(("name", "count", "state"), rows)
    assert unsafe(out.getvalue(), "\n") == []
    assert out.getvalue().count("\n") == 1 + len(rows)


@given(TEXTS)
def test_an_event_is_one_line(text: str) -> None:
    for json_lines in (False, True):
        out = io.StringIO()
        logger = logging.getLogger("odradek")
        before = logger.handlers[:], logger.level, logger.propagate, logging.getLogger("asyncio").handlers[:]
        try:
            events.configure(stream=out, json_lines=json_lines)
            events.get("t").info("happened", name=text)
            logging.getLogger("odradek.t").warning("%s", text)
        finally:
            logger.handlers[:], logger.level, logger.propagate = before[:3]
            logging.getLogger("asyncio").handlers[:] = before[3]
        assert out.getvalue().count("\n") == 2
        assert unsafe(out.getvalue(), "\n") == []


def test_a_forged_audit_event_stays_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "g\n2026-11-27T12:00:00Z change done User:admin\x1b[2J"
    event = {"time_ms": 1, "kind": "refusal", "client": evil, "resources": [f"GROUP:{evil}"], "detail": evil}
    path = tmp_path / "audit.log"
    path.write_text(json.dumps(event) + "\n")
    search.main(["--file", str(path)], standalone_mode=False)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert unsafe(out, "\n") == []


@given(
    st.binary(),
    st.binary(),
    TEXTS.filter(lambda text: not any("\ud800" <= letter <= "\udfff" for letter in text)),
)
def test_records_on_a_terminal_are_safe_and_exact_elsewhere(key: bytes, value: bytes, name: str) -> None:
    fields = dict.fromkeys(ConsumerRecord._fields)
    record = ConsumerRecord(
        **{
            **fields,
            "topic": "t",
            "partition": 0,
            "offset": 1,
            "timestamp_ms": 2,
            "key": key,
            "value": value,
            "headers": ((name, value),),
        }
    )
    wide = {"with_key": True, "with_headers": True}
    shown = formatter(Layout(is_safe=True, **wide))(record).decode()
    assert unsafe(shown.replace("\t", ""), "\n") == []
    assert shown.count("\n") == 1
    assert formatter(Layout(is_safe=True, template="{key}{value}"))(record) == safe_bytes(key) + safe_bytes(
        value
    )
    assert (
        formatter(Layout(**wide))(record)
        == name.encode() + b"=" + value + b"\t" + key + b"\t" + value + b"\n"
    )
    assert unsafe(formatter(Layout(format="json"))(record).decode(), "\n") == []


@given(st.binary(), TEXTS.filter(lambda text: not any("\ud800" <= letter <= "\udfff" for letter in text)))
def test_digits_have_safe_headers_wherever_they_go(value: bytes, name: str) -> None:
    fields = dict.fromkeys(ConsumerRecord._fields)
    known = {"topic": "t", "partition": 0, "offset": 1, "timestamp_ms": 2, "key": value, "value": value}
    record = ConsumerRecord(**{**fields, **known, "headers": ((name, value),)})
    for kind, encoded in (("hex", value.hex()), ("base64", base64.b64encode(value).decode())):
        for is_safe in (False, True):
            layout = Layout(format=kind, with_key=True, with_headers=True, is_safe=is_safe)
            shown = formatter(layout)(record).decode()
            assert shown == f"{safe_line(name)}={encoded}\t{encoded}\t{encoded}\n"


@given(st.lists(st.tuples(TEXTS | st.text(" \u3000\xa0ab"), st.text(" ab\u2003")), min_size=1, max_size=5))
def test_a_cell_does_not_look_like_two(rows: list[tuple[str, str]]) -> None:
    for row in rows:
        for text in row:
            shown = output.cell_text(text)
            assert shown == shown.strip()
            assert not any(before.isspace() and after.isspace() for before, after in pairwise(shown))


PRINTERS = {"echo", "secho", "echo_via_pager", "confirm", "print"}
ALLOWED = {"output.py", "progress.py"}


def bypasses(tree: ast.AST) -> list[int]:
    """Lines that print text without the one place."""
    lines = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="click"), attr=attr)) if attr in PRINTERS:
                lines.append(node.lineno)
            case ast.Call(func=ast.Name(id="print")):
                lines.append(node.lineno)
            case ast.Attribute(
                value=ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr"), attr="write"
            ):
                lines.append(node.lineno)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="json"), attr="dumps"), keywords=keywords) if (
                any(keyword.arg == "ensure_ascii" for keyword in keywords)
            ):
                lines.append(node.lineno)
    return lines


def test_commands_print_through_one_file() -> None:
    root = Path(output.__file__).parent
    files = [*root.rglob("*.py"), *(root.parent / "sql" / "shell").glob("*.py")]
    bypassing = {
        f"{path.relative_to(root.parent)}:{line}"
        for path in files
        if path.name not in ALLOWED
        and path != root / "sandbox" / "command.py"
        and path != root / "records" / "input.py"
        for line in bypasses(ast.parse(path.read_text()))
    }
    assert bypassing == set()
    assert bypasses(ast.parse("click.echo(name)")) == [1]


FORGED = "production-billing classic Dead"


@given(
    st.lists(st.text(st.sampled_from("ab >─-\t\\"), max_size=249), max_size=4),
    st.integers(min_value=30, max_value=90),
)
@example(["board" + "x" * 40 + " " + FORGED, "> b", ">"], 60)
@example(["x" * 249, FORGED], 80)
@example([f"{'─' * 60}{FORGED}"], 40)
def test_a_long_name_on_a_terminal_does_not_look_like_several_rows(names: list[str], width: int) -> None:
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(out, "isatty", lambda: True, raising=False)
        patched.setattr("sys.stdout", out)
        patched.setenv("COLUMNS", str(width))
        patched.setenv("TERM", "xterm")
        output.print_table(["group", "state"], [(name or "g", "Stable") for name in names])
    _, _, *lines = [line for line in out.getvalue().splitlines() if line.strip()]
    begun = [line for line in lines if not line.startswith(" ") or line[1] != ">"]
    rows = [line for line in lines if line.strip()[:1] != ">"]
    assert begun == rows
    assert len(rows) == len(names)
    assert all("Stable" in line for line in rows)
