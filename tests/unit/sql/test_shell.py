"""The shell: statements are cut where they end, and answers fit the terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.unit.sql.sql_service import ScriptedService, served

from odradek.model.errors import ConfigError
from odradek.sql.rest_client import RestClient, ServerRefusal
from odradek.sql.shell import rendering
from odradek.sql.shell.names import KnownNames
from odradek.sql.shell.rendering import TextTable, cell, rendered, schema_text
from odradek.sql.shell.rows import LiveTable, row_lines
from odradek.sql.shell.session import HELP, ShellSession
from odradek.sql.shell.splitting import is_complete, placed_statements, shell_word, statements, step_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a; b;", ["a;", "b;"]),
        ("a 'x;y' ; -- no; comment\nb", ["a 'x;y' ;", "-- no; comment\nb"]),
        ("/* ; */ a `;` ;", ["/* ; */ a `;` ;"]),
        ("CREATE FUNCTION f AS $$ x; y $$;", ["CREATE FUNCTION f AS $$ x; y $$;"]),
        (" ; -- nothing\n;", []),
    ],
)
def test_a_text_is_cut_into_statements(text: str, expected: list[str]) -> None:
    assert list(statements(text)) == expected


def test_a_statement_has_the_line_on_which_it_begins() -> None:
    text = "-- of mine\n\nSHOW\nSTREAMS; /* and\nthen */ SHOW TABLES;\n\n\n  SHOW TYPES"
    assert [line for line, _ in placed_statements(text)] == [3, 5, 8]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("SHOW STREAMS", False),
        ("SHOW STREAMS;", True),
        ("SELECT 'a;", False),
        ("SELECT 'it''s';", True),
        ("SELECT 1; -- end", False),
        ("/* not yet ;", False),
        ("exit", True),
        ("help me", True),
    ],
)
def test_enter_runs_what_is_complete(text: str, expected: bool) -> None:
    assert is_complete(text) is expected


def test_words_of_the_shell_need_no_semicolon() -> None:
    assert shell_word("Exit ;") == ("exit", "")
    assert shell_word("SELECT exit;") is None


@pytest.mark.parametrize(
    ("text", "kind", "arguments"),
    [
        ("SET 'auto.offset.reset' = 'earliest';", "set", ("auto.offset.reset", "earliest")),
        ("unset 'a';", "unset", ("a",)),
        ("DEFINE who='it''s';", "define", ("who", "it's")),
        ("-- why\nRUN SCRIPT 'a b.sql';", "script", ("a b.sql",)),
        ("SPOOL OFF;", "spool", ("", "OFF")),
        ("SHOW VARIABLES;", "variables", ()),
        ("/* x */ select 1;", "query", ()),
        ("PRINT 'a';", "query", ()),
        ("CREATE STREAM s;", "statement", ()),
    ],
)
def test_what_the_shell_does_itself(text: str, kind: str, arguments: tuple[str, ...]) -> None:
    step = step_of(text)
    assert (step.kind, step.arguments) == (kind, arguments)


@pytest.fixture
def service() -> ScriptedService:
    return ScriptedService()


@pytest.fixture
def shown() -> list[str]:
    return []


@pytest.fixture
def session(service: ScriptedService, shown: list[str]) -> Iterator[ShellSession]:
    with served(service) as url:
        session = ShellSession(RestClient(url=url), shown.append, width=lambda: 23)
        yield session
        session.close()


def test_settings_and_variables_go_with_each_request(session: ShellSession, service: ScriptedService) -> None:
    session.run("SET 'p'='q'; DEFINE n='5'; CREATE STREAM ${n}; UNSET 'p'; UNDEFINE n; SELECT 1;")
    assert service.requests == [("CREATE STREAM ${n};", {"p": "q"}, {"n": "5"}), ("SELECT 1;", {}, {})]


def test_rows_are_drawn_in_columns(session: ShellSession, shown: list[str]) -> None:
    session.run("SELECT 1;")
    assert shown == [
        "ID | NAME",
        "---+-------",
        " 1 | one",
        " 2 | zwei ö",
        "Query Completed, rows: 2",
    ]


def test_json_is_an_object_a_line(session: ShellSession, shown: list[str]) -> None:
    session.output = "json"
    session.run("SELECT 1;")
    assert shown == ['{"ID": 1, "NAME": "one"}', '{"ID": 2, "NAME": "zwei ö"}']


def test_ctrl_c_ends_the_query_and_not_the_shell(
    session: ShellSession, service: ScriptedService, shown: list[str]
) -> None:
    def interrupt(line: str) -> None:
        shown.append(line)
        if line.startswith(" 2 "):
            raise KeyboardInterrupt

    session.show = interrupt
    session.run("SELECT 1 EMIT CHANGES; SHOW x;")
    assert "Query terminated" in shown
    assert shown[-1] == "Stream created"
    assert service.open_queries == set()


def test_a_script_stops_at_the_first_wrong_statement(
    session: ShellSession, service: ScriptedService, tmp_path: Path
) -> None:
    script = tmp_path / "a.sql"
    script.write_text("CREATE a;\nwrong;\nCREATE b;")
    with pytest.raises(ServerRefusal, match=r"a\.sql, the statement at line 2:\n.*no such thing"):
        session.run(f"RUN SCRIPT '{script}';")
    assert [text for text, _, _ in service.requests] == ["CREATE a;", "wrong;"]
    with pytest.raises(ConfigError, match="cannot be read"):
        session.run("RUN SCRIPT '/nowhere.sql';")


def test_a_script_that_runs_itself_ends(session: ShellSession, tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_text(f"RUN SCRIPT '{script}';")
    with pytest.raises(ConfigError, match="at most 16 deep"):
        session.run(f"RUN SCRIPT '{script}';")


def test_a_spool_has_what_was_shown(session: ShellSession, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    session.run(f"SPOOL '{spool}'; CREATE a; SPOOL OFF; CREATE b;")
    assert spool.read_text().splitlines()[1:] == ["", "Stream created"]


def test_a_table_is_no_wider_than_the_terminal() -> None:
    table = TextTable(
        ("Name", "A long text"), (("x", "one two three four five six"), ("yy", "漢字漢字漢字漢字"))
    )
    lines = table.lines(20)
    assert lines[:2] == ["Name   | A long text", "-------+------------"][:0] + lines[:2]
    assert all(len(line) <= 20 for line in lines)
    assert (
        "".join(line.partition(" | ")[2] for line in lines[2:5]).replace(" ", "") == "onetwothreefourfivesix"
    )


NAMED_COLUMNS = (("ID", "BIGINT"), ("NAME", "STRING"), ("PRICE", "DECIMAL(4, 2)"))


def test_columns_are_as_wide_as_their_rows_and_grow_with_them() -> None:
    table = LiveTable(NAMED_COLUMNS, lambda: 80)
    assert list(table.batch([[1, "a", 9.5], [None, "b\nc", 12.25]])) == [
        "  ID | NAME | PRICE",
        "-----+------+------",
        "   1 | a    |   9.5",
        "null | b\\nc | 12.25",
    ]
    assert list(table.batch([[2, "ab", 1]])) == ["   2 | ab   |     1"]
    assert list(table.batch([[3, "Konstanz", 1]])) == [
        "  ID | NAME         | PRICE",
        "-----+--------------+------",
        "   3 | Konstanz     |     1",
    ]
    assert list(table.end()) == []


def test_a_table_without_rows_shows_its_columns() -> None:
    assert next(LiveTable(NAMED_COLUMNS, lambda: 80).end()) == "ID | NAME | PRICE"


@given(
    st.lists(st.lists(st.text(max_size=40) | st.integers() | st.none(), min_size=3, max_size=3), max_size=5),
    st.integers(30, 90),
)
def test_rows_are_no_wider_than_the_terminal(rows: list[list[Any]], width: int) -> None:
    table = LiveTable(NAMED_COLUMNS, lambda: width)
    lines = [line for row in rows for line in table.batch([row])]
    assert all(cell_len(line) <= width and line.splitlines() in ([], [line]) for line in lines)


def test_a_record_of_print_is_on_one_line_whatever_its_value_is(shown: list[str]) -> None:
    columns = [("ROWTIME", "STRING"), ("KEY", "STRING"), ("VALUE", "STRING"), ("PARTITION", "INTEGER")]
    lines = row_lines("table", columns, lambda: 20, is_print=True)
    assert list(lines.batch([["2026-01-01", None, '{"a": "' + "long " * 20 + 'x\n"}', 0]])) == [
        'rowtime: 2026-01-01, key: <null>, value: {"a": "' + "long " * 20 + 'x\\n"}, partition: 0'
    ]


@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["C"])), st.integers() | st.none())))
def test_csv_is_read_back_as_it_was(rows: list[tuple[str, int | None]]) -> None:
    lines = row_lines("csv", [("T,EXT", "STRING"), ("N", "INTEGER")], lambda: 20, is_print=False)
    text = "\n".join([*lines.batch(rows), *lines.end()])
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["T,EXT", "N"],
        *([content, "" if number is None else str(number)] for content, number in rows),
    ]


@pytest.mark.parametrize(
    ("output", "data"),
    [
        ("json", ["ID", "NAME"]),
        ("csv", ["ID,NAME", "1,one", "2,zwei ö"]),
    ],
)
def test_programs_get_data_and_people_the_remarks(
    session: ShellSession, shown: list[str], output: Any, data: list[str]
) -> None:
    remarks: list[str] = []
    session.output, session.remark, session.timings = output, remarks.append, True
    session.run("SET 'a'='b'; help; CREATE a; SELECT 1; SPOOL OFF; exit;")
    if output == "json":
        objects = [json.loads(line) for line in shown]
        assert [object_["@type"] for object_ in objects[:1]] == ["currentStatus"]
        assert [list(object_) for object_ in objects[1:]] == [data, data]
    else:
        assert shown == data
        assert "Stream created" in remarks
    assert "Query Completed, rows: 2" in remarks
    assert any(line.startswith("Time: ") for line in remarks)


@pytest.mark.parametrize("word", ["exit", "quit;", "\\q", "\\exit", "EXIT ;"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_exit_ends_a_text_wherever_it_stands(
    session: ShellSession, service: ScriptedService, tmp_path: Path, word: str, end: str
) -> None:
    assert session.run(f"CREATE a;\n{word}\nCREATE b;{end}") is False
    script = tmp_path / "a.sql"
    script.write_text(f"CREATE c;\n{word}\nwrong;")
    assert session.run(f"RUN SCRIPT '{script}'; wrong;") is False
    assert session.run("CREATE d;") is True
    assert [text for text, _, _ in service.requests] == ["CREATE a;", "CREATE c;", "CREATE d;"]


@pytest.mark.parametrize("word", ["help", "\\help", "\\?", "?", "\\h", "HELP;"])
def test_help_is_shown_by_each_of_its_names(session: ShellSession, shown: list[str], word: str) -> None:
    assert is_complete(word)
    session.run(word)
    assert shown == [HELP]


def test_timing_is_switched_by_its_word(session: ShellSession, shown: list[str]) -> None:
    session.run("\\timing on\nCREATE a;\ntiming;\nCREATE b;")
    assert shown[0] == "Timing is on."
    assert [line.startswith("Time: ") for line in shown].count(True) == 1
    assert shown[-1] == "Stream created"


PLAN = """\
write to topic X, key KAFKA, value JSON
  stateful: aggregate COUNT by A
    native: select <A>, "N"
      native: read stream S from topic s-topic
      stateful: read table T from topic t-topic"""


def test_explain_draws_the_plan(
    session: ShellSession, service: ScriptedService, shown: list[str], tmp_path: Path
) -> None:
    service.description = {
        "id": "CTAS_X_1",
        "statementText": "",
        "sources": [],
        "sinks": [],
        "fields": [],
        "executionPlan": PLAN,
    }
    path = tmp_path / "it's; a plan.svg"
    written = str(path).replace("'", "''")
    session.run(f"EXPLAIN CTAS_X_1 --picture '{written}'; EXPLAIN CTAS_X_1; CREATE a;")
    assert [text for text, _, _ in service.requests] == [
        "EXPLAIN CTAS_X_1;",
        "EXPLAIN CTAS_X_1;",
        "CREATE a;",
    ]
    assert [line for line in shown if "picture" in line] == [f"The picture of the plan is in {path}."]
    drawn = ElementTree.fromstring(path.read_text())
    titles = [title.text or "" for title in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert {line.strip().partition(": ")[2] or line for line in PLAN.splitlines()} <= set(titles)
    lines = [title for title in titles if " → " in title]
    assert sorted(lines) == ["aggregate → X", "s-topic → select", "select → aggregate", "t-topic → select"]


def test_explain_draws_into_the_file_of_the_command_line(
    session: ShellSession, service: ScriptedService, tmp_path: Path
) -> None:
    service.description = {"id": "", "statementText": "", "sources": [], "sinks": [], "fields": []}
    session.picture = tmp_path / "a.svg"
    session.run("explain SELECT 1;")
    assert session.picture.read_text().startswith("<svg")
    with pytest.raises(ConfigError, match=r"--picture: /nowhere/b\.svg cannot be written"):
        session.run("EXPLAIN --picture='/nowhere/b.svg' Q_1;")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "null"), (1.5, "1.5"), (True, "true"), ([1, None], "[1, null]"), ({"a": "b"}, "{a=b}")],
)
def test_values_as_people_read_them(value: Any, expected: str) -> None:
    assert cell(value) == expected


def test_entities_are_shown(shown: list[str]) -> None:
    streams = {
        "@type": "streams",
        "warnings": [{"message": "careful"}],
        "streams": [
            {"name": "S", "topic": "s", "keyFormat": "KAFKA", "valueFormat": "JSON", "isWindowed": False}
        ],
    }
    warning, table = rendered(streams)
    assert warning == "WARNING: careful"
    assert isinstance(table, TextTable)
    assert table.rows == (("S", "s", "KAFKA", "JSON", "false"),)
    assert list(rendered({"@type": "new_kind", "a": 1})) == ['{\n  "@type": "new_kind",\n  "a": 1\n}']


def test_types_are_written_as_in_the_language() -> None:
    member = {"type": "STRUCT", "fields": [{"name": "A", "schema": {"type": "STRING"}}]}
    assert schema_text({"type": "ARRAY", "memberSchema": member}) == "ARRAY<STRUCT<A VARCHAR(STRING)>>"


def test_names_are_completed_by_what_they_may_be() -> None:
    names = KnownNames(RestClient())
    names.columns = {"ORDERS": ("ITEM", "it em"), "USERS": ("NAME",)}
    names.functions = ("UCASE",)
    assert list(names.matching("SELECT orders.it")) == [
        ("ITEM", "column of ORDERS", 2),
        ("`it em`", "column of ORDERS", 2),
    ]
    assert ("USERS", "source", 2) in list(names.matching("select * from us"))
    assert ("ucase", "function", 2) in list(names.matching("select uc"))
    assert ("SELECT", "keyword", 3) in list(names.matching("SEL"))
    assert list(names.matching("SELECT ")) == []


@pytest.mark.parametrize(
    ("before", "first", "others"),
    [
        ("SHOW STR", "STREAMS", []),
        ("show str", "streams", []),
        ("LIST T", "TABLES", ["TOPICS", "TYPES"]),
        ("SHOW ", "STREAMS", None),
        ("a; DESCRIBE STR", "STRINGS", ["STREAMS"]),
        ("DESCRIBE FUNCTION U", "UCASE", []),
        ("SELECT * FROM s JOIN O", "ORDERS", []),
        ("INSERT INTO O", "ORDERS", []),
        ("SELECT * FROM ", "ORDERS", ["STRINGS"]),
        ("DROP TABLE IF EXISTS O", "ORDERS", []),
        ("DROP T", "TABLE", ["TYPE"]),
        ("CREATE STR", "STREAM", []),
        ("TERMINATE C", "CSAS_X_1", []),
        ("EXPLAIN C", "CSAS_X_1", ["CREATE"]),
        ("PRINT 'or", "orders-topic", []),
    ],
)
def test_completion_offers_what_the_statement_may_go_on_with(
    before: str, first: str, others: list[str] | None
) -> None:
    names = KnownNames(RestClient())
    names.columns = {"ORDERS": ("STR",), "STRINGS": ()}
    names.functions = ("UCASE", "STRUCT_OF")
    names.queries, names.topics = ("CSAS_X_1",), ("orders-topic",)
    offered = [text for text, _, _ in names.matching(before)]
    assert offered[0] == first
    assert others is None or offered[1:] == others


def test_a_tab_replaces_only_the_word_before_it() -> None:
    names = KnownNames(RestClient())
    names.topics = ("my-orders.eu",)
    assert list(names.matching("PRINT 'my-or")) == [("my-orders.eu", "topic", 5)]
    assert list(names.matching("PRINT my-or")) == [("'my-orders.eu'", "topic", 5)]


EVIL = "x\r\nFORGED | Dead\x1b[2J\x85FORGED\u2028FORGED\u202e"
COLUMN = {
    "name": EVIL,
    "schema": {"type": "STRUCT", "fields": [{"name": EVIL, "schema": {"type": "STRING"}}]},
}
FAILING = {
    "id": EVIL,
    "state": EVIL,
    "queryType": EVIL,
    "queryString": EVIL,
    "statementText": EVIL,
    "sinks": [EVIL],
    "sources": [EVIL],
    "failureCount": 2,
    "queryErrors": [{"errorMessage": EVIL, "timestamp": 1}],
    "fields": [COLUMN],
    "executionPlan": EVIL,
}
NAMED = dict.fromkeys(
    ("name", "topic", "keyFormat", "valueFormat", "source", "format", "path", "queryId", "state", "value"),
    EVIL,
)
SOURCE = {
    **NAMED,
    "type": "TABLE",
    "extended": True,
    "partitions": 1,
    "replication": 1,
    "statement": EVIL,
    "statistics": EVIL,
    "errorStats": EVIL,
    "windowType": EVIL,
    "fields": [COLUMN],
    "readQueries": [FAILING],
    "writeQueries": [FAILING],
}
PLACE = {"partition": EVIL, "position": 1, "end": 2, "behind": 1}
ARCHIVE = {
    **NAMED,
    "problem": EVIL,
    "partitionBy": [EVIL],
    "extended": True,
    "rows": 1,
    "files": 1,
    "bytes": 1,
    "statement": EVIL,
    "fields": [COLUMN],
    "partitions": [PLACE],
}
FUNCTION = {
    "name": EVIL,
    "type": EVIL,
    "description": EVIL,
    "functions": [
        {"arguments": [{"name": EVIL, "type": EVIL}], "returnType": EVIL, "description": EVIL},
    ],
}
ENTITIES: dict[str, dict[str, Any]] = {
    "currentStatus": {"commandStatus": {"status": EVIL, "message": EVIL}},
    "streams": {"streams": [NAMED]},
    "tables": {"tables": [NAMED]},
    "queries": {"queries": [FAILING]},
    "archives": {"archives": [NAMED]},
    "archiveDescription": {"archiveDescription": ARCHIVE},
    "kafka_topics": {"topics": [{"name": EVIL, "replicaInfo": [1]}]},
    "properties": {"properties": [{"name": EVIL, "value": EVIL, "scope": EVIL}]},
    "variables": {"variables": [{"name": EVIL, "value": EVIL}]},
    "function_names": {"functions": [{"name": EVIL, "type": EVIL}]},
    "sourceDescription": {"sourceDescription": SOURCE},
    "source_descriptions": {"sourceDescriptions": [SOURCE]},
    "queryDescription": {"queryDescription": FAILING},
    "query_descriptions": {"queryDescriptions": [FAILING]},
    "describe_function": FUNCTION,
    "type_list": {"types": {EVIL: COLUMN["schema"]}},
    "assert_stream": {"name": EVIL},
    "assert_table": {"name": EVIL},
    "assert_topic": {"topicName": EVIL, "exists": True},
    "assert_schema": {"subject": EVIL, "exists": True},
    "warning_entity": {"message": EVIL},
    "of a kind to come": {"name": EVIL},
}


@pytest.mark.parametrize("width", [40, 400])
@pytest.mark.parametrize("kind", list(ENTITIES))
def test_names_and_texts_of_others_begin_no_line_of_an_answer(kind: str, width: int) -> None:
    entity = {"@type": kind, "warnings": [{"message": EVIL}], **ENTITIES[kind]}
    lines = [
        line
        for part in rendered(entity)
        for text in (part.lines(width) if isinstance(part, TextTable) else [part])
        for line in text.split("\n")
    ]
    assert any("FORGED" in line for line in lines)
    assert [line for line in lines if line.startswith("FORGED") or not line.isprintable()] == []


def test_every_kind_of_answer_is_tried() -> None:
    assert {*rendering.RENDERERS, "of a kind to come"} == ENTITIES.keys()


def test_the_names_of_columns_begin_no_line_either() -> None:
    head = list(LiveTable([(EVIL, EVIL)], lambda: 400).end())
    assert len(head) == 2
    assert all(line.isprintable() and not line.startswith("FORGED") for line in head)
