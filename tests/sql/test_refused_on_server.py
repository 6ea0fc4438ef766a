"""What the test driver refuses, the server refuses with the same words, and with ksqlDB's code of a statement that is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.sql.case_files import Case
from tests.sql.case_runner import planned
from tests.sql.case_server import CaseServer, case_server
from tests.sql.test_cases import REFUSED

from odradek.client import Admin, NewTopic
from odradek.sql.server.refusals import BAD_STATEMENT
from odradek.testing import LocalBroker
from odradek.values.errors import SqlError

_TOPIC = re.compile(r"KAFKA_TOPIC\s*=\s*'([^']+)'", re.IGNORECASE)
_QUERY_NUMBER = re.compile(r"\b((?:CSAS|CTAS|INSERTQUERY|ARCHIVE)(?:_\w+?)?_)[0-9]+\b")
"""It counts the commands of a server."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaseServer]:
    named = {name for case in REFUSED.values() for name in _TOPIC.findall(case.statements)}
    topics = {name for name in named if name.isalnum()}
    with LocalBroker() as broker, Admin(broker.address) as admin:
        admin.create_topics([NewTopic(topic, 1, 1) for topic in sorted(topics)])
        with case_server(broker.address, tmp_path_factory.mktemp("cases"), runs_queries=False) as server:
            yield server


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_the_server_refuses_with_the_same_words(case: Case, server: CaseServer) -> None:
    with pytest.raises(SqlError) as refused:
        planned(case)
    refusal = server.refusal_of(case)
    assert refusal is not None, "the server accepts it"
    assert refusal.code == BAD_STATEMENT
    if case.server_error is not None:
        assert case.server_error in refusal.message
        return
    assert _QUERY_NUMBER.sub(r"\1N", refusal.message) == _QUERY_NUMBER.sub(
        r"\1N", refused.value.text(case.statements)
    )
