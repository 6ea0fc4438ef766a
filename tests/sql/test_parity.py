"""Each row of the comparison with ksqlDB is tried by something that is there, and there are as many cases as is said."""

from __future__ import annotations

from tests.sql.case_files import cases_of
from tests.sql.functions.cases import cases
from tests.sql.parity import FOLDER, PAGE, ParityRow, known_cases, page, parts
from tests.sql.test_expressions import RESULTS

CASES_MIN = 1_500


def test_each_row_is_tried_by_what_is_there() -> None:
    rows = [part for part in parts() if isinstance(part, ParityRow)]
    known = known_cases()
    assert [row.what for row in rows if not row.tried_by] == []
    assert [name for row in rows for name in row.tried_by if name not in known] == []
    assert len({row.what for row in rows}) == len(rows)


def test_the_page_is_that_of_the_rows() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == page(), "run: python -m tests.sql.parity > docs/sql-statements.md"


def test_there_are_enough_cases() -> None:
    of_statements = [case for path in (FOLDER / "cases").glob("*.case") for case in cases_of(path)]
    assert len({case.name for case in of_statements}) > len(of_statements) * 0.95
    assert len(of_statements) + len(set(RESULTS_TEXTS)) + len(list(cases())) >= CASES_MIN


RESULTS_TEXTS = [written for written, _, _ in RESULTS]
