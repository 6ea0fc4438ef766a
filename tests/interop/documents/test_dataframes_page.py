"""The programs of docs/dataframes.md run as they are printed, one after the other, beside a registry with its schema."""

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from odradek.testing import LocalBroker

PAGE = (Path(__file__).parents[3] / "docs" / "dataframes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
(SCHEMA,) = re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def registry() -> Iterator[str]:
    """The address of a registry that has the page's schema."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            has_it = self.path == "/subjects/flights-value/versions/latest"
            content = json.dumps({"id": 1, "schema": SCHEMA} if has_it else {"error_code": 40401}).encode()
            self.send_response(200 if has_it else 404)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Writes nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_every_program_works_as_printed(registry: str) -> None:
    assert len(BLOCKS) == 6
    scope: dict[str, Any] = {"__name__": "page"}
    with LocalBroker({"group.initial.rebalance.delay.ms": "0", "num.partitions": "1"}) as broker:
        for block in BLOCKS:
            here = block.replace("127.0.0.1:9092", broker.address).replace("127.0.0.1:8081", registry)
            exec(here, scope)
    keys = [b"JFK", b"LAX", b"JFK"] * 2  # sent once by each client
    values = [b"delayed", b"on time", None] * 2
    assert scope["boards"]["key"].to_list()[:3] == keys[:3]
    assert scope["in_pandas"]["value"].notna().tolist()[:3] == [True, True, False]
    assert (scope["by_hand"]["key"].to_list(), scope["by_hand"]["value"].to_list()) == (keys, values)
    assert scope["late"]["value"].to_list() == [
        {"carrier": "UA", "delay_min": 20},
        {"carrier": "DL", "delay_min": None},
    ]
    assert scope["late"]["key"].to_list() == [b"UA1", b"DL2"]
