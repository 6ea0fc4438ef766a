"""Cases that write, on a SQL server with its engine: topics get the records that the test driver writes.

This is one test with one engine: a JVM for each worker of pytest would cost more than the cases do. It runs cases that
have every shape of plan together; `make cases` runs all of them.
"""

from __future__ import annotations

import faulthandler
from pathlib import Path

import pytest
from tests.sql.case_server import CaseServer, ServedCase, case_server
from tests.sql.case_shapes import sample
from tests.sql.test_cases import WRITTEN, has_spark

from odradek.testing import LocalBroker

SIDE_BY_SIDE = 20
LEFT_OUT = "select-a record that cannot be read is left out"


@pytest.mark.spark
@pytest.mark.skipif(not has_spark, reason="PySpark or Java is absent")
def test_a_server_writes_what_the_cases_say(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    faulthandler.cancel_dump_traceback_later()  # each of its waits has a limit; a loaded machine may take long for all
    left_out = WRITTEN[LEFT_OUT]
    every_case = list(WRITTEN.values())
    chosen = every_case if request.config.getoption("--every-case", default=False) else sample(every_case)
    cases = [left_out, *(case for case in chosen if case is not left_out)]
    different = []
    with LocalBroker() as broker, case_server(broker.address, tmp_path, runs_queries=True) as server:
        for first in range(0, len(cases), SIDE_BY_SIDE):
            for running in server.run(cases[first : first + SIDE_BY_SIDE]):
                different += _differences(running)
                if running.case is left_out:
                    its_entries_are_in_the_processing_log(server, running)
    assert not different, "\n".join(different)


def _differences(running: ServedCase) -> list[str]:
    wanted, written = running.as_bytes.wanted, running.as_bytes.compared(running.written)
    if written == wanted:
        return []
    return [f"== {running.case.name}", "-- wanted", *map(str, wanted), "-- written", *map(str, written)]


def its_entries_are_in_the_processing_log(server: CaseServer, running: ServedCase) -> None:
    (topic,), (query_id,) = running.source_topics, running.query_ids
    (unreadable, negative) = server.left_out(topic)
    assert unreadable[:2] == (1, f"processing.{query_id}.deserializer")
    assert negative[:2] == (2, f"processing.{query_id}.deserializer")
    assert "JSON" in unreadable[2]
    assert "-7 is negative" in negative[2]
