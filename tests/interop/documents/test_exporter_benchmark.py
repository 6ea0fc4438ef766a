"""The benchmark of scrapes runs beside an exporter: a stand-in with kafka_exporter's flags that asks the broker as a client."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.watching.exporter import LagsDisagreeError, run

EXPORTER = """#!{python}
import http.server
import sys

from odradek.client import LATEST, Admin

flags = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        lines = []
        with Admin(flags["kafka.server"]) as admin:
            for listing in admin.list_groups():
                offsets = admin.list_group_offsets(listing.group_id)
                ends = admin.list_offsets({{tp: LATEST for tp in offsets}})
                for tp, committed in offsets.items():
                    labels = 'topic="%s",partition="%d",consumergroup="%s"' % (*tp, listing.group_id)
                    lag = ends[tp].offset - committed.offset + {error}
                    lines.append("kafka_consumergroup_lag{{%s}} %d\\n" % (labels, lag))
        self.send_response(200)
        self.end_headers()
        self.wfile.write("".join(lines).encode())


host, port = flags["web.listen-address"].rsplit(":", 1)
http.server.HTTPServer((host, int(port)), Page).serve_forever()
"""


@pytest.fixture
def own_brokers(server_kind: str) -> None:
    if server_kind == "kafka":
        pytest.skip("runs its own brokers")


def exporter(directory: Path, error: int = 0) -> Path:
    program = directory / "exporter"
    program.write_text(EXPORTER.format(python=sys.executable, error=error))
    program.chmod(0o755)
    return program


@pytest.mark.usefixtures("own_brokers")
def test_both_are_asked_in_turn_and_have_the_committed_lags(tmp_path: Path) -> None:
    lines = run(topics=12, groups=2, rounds=2, exporter=exporter(tmp_path)).splitlines()
    assert "2 groups with 80 lags" in lines[0]
    assert sum("kafka_exporter's" in line for line in lines) == 4, "a ratio for each figure"
    assert sum(line.lstrip().startswith("kafka_exporter ") for line in lines) == 4


@pytest.mark.usefixtures("own_brokers")
def test_a_scrape_with_another_lag_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(LagsDisagreeError, match="kafka_exporter: the lag of group group-0"):
        run(topics=3, groups=1, rounds=1, exporter=exporter(tmp_path, error=1))


@pytest.mark.usefixtures("own_brokers")
def test_an_exporter_that_ends_at_once_is_named_with_what_it_wrote(tmp_path: Path) -> None:
    program = tmp_path / "exporter"
    program.write_text("#!/bin/sh\necho no brokers here\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match=r"does not listen: it ended with code 3\nno brokers here"):
        run(topics=3, groups=1, rounds=1, exporter=program)
