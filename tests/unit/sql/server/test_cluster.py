"""Which servers are known by their heartbeats and lags, and which statements end a service."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.sql.applying import apply
from odradek.sql.language import parse
from odradek.sql.metastore.catalog import SqlCatalog
from odradek.sql.server.cluster import ALIVE_MS, KnownHosts, ending_statements
from odradek.sql.server.refusals import RestRefusal

HOST = {"host": "b", "port": 8088}
STATEMENTS = """
CREATE STREAM s (k INT KEY, a INT) WITH (KAFKA_TOPIC='in', VALUE_FORMAT='JSON');
CREATE SOURCE TABLE r (k INT PRIMARY KEY, a INT) WITH (KAFKA_TOPIC='read', VALUE_FORMAT='JSON');
CREATE STREAM o WITH (KAFKA_TOPIC='out.1') AS SELECT * FROM s;
CREATE STREAM `Small` WITH (KAFKA_TOPIC='out.2') AS SELECT * FROM o;
CREATE TABLE t WITH (KAFKA_TOPIC='totals') AS SELECT a, COUNT(*) AS n FROM o GROUP BY a;
INSERT INTO o SELECT * FROM s;
"""


def test_a_server_is_alive_while_it_sends_heartbeats() -> None:
    hosts = KnownHosts()
    hosts.heard({"hostInfo": HOST, "timestamp": 1}, 1_000)
    seen = hosts.statuses("a:1", ["Q"], 1_000 + ALIVE_MS - 1)
    assert (seen["b:8088"]["hostAlive"], seen["b:8088"]["lastStatusUpdateMs"]) == (True, 1_000)
    assert (list(seen), seen["a:1"]["hostAlive"]) == (["a:1", "b:8088"], True)
    assert list(seen["a:1"]["activeStandbyPerQuery"]) == ["Q"]
    assert hosts.statuses("a:1", [], 1_000 + ALIVE_MS)["b:8088"]["hostAlive"] is False
    hosts.heard({"hostInfo": HOST}, 9_000)
    assert hosts.statuses("a:1", [], 9_001)["b:8088"]["hostAlive"] is True


def test_lags_of_a_server_are_shown() -> None:
    hosts = KnownHosts()
    lags = {"stateStoreLags": {"Q#S": {"lagByPartition": {"0": {"offsetLag": 3}}}}, "updateTimeMs": 7}
    hosts.reported({"ksqlHost": HOST, "hostStoreLags": lags}, 5)
    hosts.heard({"hostInfo": HOST}, 6)
    assert hosts.statuses("a:1", [], 6)["b:8088"]["hostStoreLags"] == lags


def test_at_most_a_hundred_servers_are_known() -> None:
    hosts = KnownHosts()
    for port in range(150):
        hosts.heard({"hostInfo": {"host": "b", "port": port}}, port)
        hosts.heard({"hostInfo": {"host": "b", "port": 0}}, port)
    seen = hosts.statuses("a:1", [], 150)
    assert len(seen) == 101
    assert {"b:0", "b:149"} < set(seen)
    assert "b:1" not in seen


@pytest.mark.parametrize(
    "message", [{}, {"hostInfo": "b"}, {"hostInfo": {"host": "b"}}, {"hostInfo": {"port": 1}}]
)
def test_a_heartbeat_that_names_no_host_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(RestRefusal, match="hostInfo, an object with host and port"):
        KnownHosts().heard(message, 1)
    with pytest.raises(RestRefusal, match="hostStoreLags"):
        KnownHosts().reported(message, 1)


def _catalog() -> SqlCatalog:
    catalog = SqlCatalog()
    for number, statement in enumerate(parse(STATEMENTS)):
        catalog = apply(catalog, statement, number).catalog
    return catalog


@pytest.mark.parametrize(
    ("wanted", "deleted"),
    [
        ([], set()),
        (["out.1"], {"O"}),
        (["out.*"], {"O", "Small"}),
        (["in", "read", ".*al.*"], {"T"}),
        ([".*"], {"O", "Small", "T"}),
        (["tot"], set()),
        (["t.*o.*s", "x.*"], {"T"}),
        (["out.*out.1"], set()),
    ],
)
def test_the_statements_that_end_a_service_leave_nothing(wanted: list[str], deleted: set[str]) -> None:
    catalog = _catalog()
    assert len(catalog.queries) == 4
    statements = ending_statements(catalog, wanted)
    gone = {text.split("`")[1] for text in statements if text.endswith("DELETE TOPIC;")}
    assert gone == deleted
    for number, statement in enumerate(parse("".join(statements)), start=9):
        catalog = apply(catalog, statement, number).catalog
    assert (dict(catalog.sources), dict(catalog.queries)) == ({}, {})


@pytest.mark.parametrize("wanted", ["out", {"a": 1}, [1], ["(a+)+"], ["a*"], [""], ["x" * 300]])
def test_what_is_no_list_of_topics_is_refused(wanted: Any) -> None:
    with pytest.raises(RestRefusal, match="topic"):
        ending_statements(_catalog(), wanted)
