"""ksqldb-client of npm, unmodified, against the SQL server: HTTP/2 without TLS."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
from pathlib import Path

import pytest
from tests.interop.languages.applications import APPLICATIONS
from tests.interop.languages.prepare import AbsentError
from tests.unit.sql.running_server import sql_server

from odradek.testing import LocalBroker

SECONDS_MAX = 90


def test_ksqldb_client_of_npm(tmp_path: Path) -> None:
    client = APPLICATIONS["ksqldb-client"]
    try:
        client.prepare()  # two small packages
        command = client.ready()
    except AbsentError as reason:
        pytest.skip(f"absent: {reason}")
    with LocalBroker() as broker, sql_server(broker.address, "npm", tmp_path) as server:
        place = urllib.parse.urlsplit(server.url)
        process = subprocess.run(
            [*command, str(place.hostname), str(place.port)],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == {
        "created": 200,
        "streams": ["TREES"],
        "fields": ["ID", "NAME"],
        "inserted": 200,
        "pushed": [{"ID": 1, "NAME": "ash"}, {"ID": 2, "NAME": "birch"}],
        "pushStatus": 200,
        "hasQueryId": True,
        "pulled": [{"NAME": "birch"}],
        "refused": {"status": 400, "code": 40001},
    }
