"""Where the code of coordinators is imported, in a process that has not done it yet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, sys, threading
from odradek.broker.app import Broker
from odradek.config.loading import load_broker_config
from odradek.protocol import RequestHeader, api_by_name, decode_response, encode_request
from odradek.protocol.messages.groups.list_groups import ListGroupsRequest
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.runtime.real import real_runtime

class Finder:
    threads = {}
    of_produce = "odradek.transactions.verification"  # a port that the data path imports in an idle moment

    def find_spec(self, name, path=None, target=None):
        if name.startswith(("odradek.groups.", "odradek.transactions.", "odradek.broker.share.")) and name != self.of_produce:
            self.threads[name] = threading.get_ident()

REQUESTS = {
    "find": ("FindCoordinator", 4, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])),
    "list": ("ListGroups", 4, ListGroupsRequest(states_filter=[])),
}

async def main(name, version, request):
    config, _ = load_broker_config({"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"})
    broker = Broker(config, real_runtime())
    await broker.start()
    sys.meta_path.insert(0, Finder())
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    header = RequestHeader(api_key=api_by_name(name).key, api_version=version, correlation_id=1, client_id="c")
    writer.write(encode_request(header, request))
    size = int.from_bytes(await reader.readexactly(4), "big")
    _, response = decode_response(header.api_key, version, await reader.readexactly(size))
    writer.close()
    await broker.stop()
    print(response)

asyncio.run(main(*REQUESTS[sys.argv[2]]))
here = [name for name, thread in Finder.threads.items() if thread == threading.get_ident()]
assert Finder.threads, "it was imported before"
assert not here, here
"""


@pytest.mark.parametrize("request_name", ["find", "list"])
def test_the_first_request_of_a_coordinator_imports_it_on_a_thread(tmp_path: Path, request_name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), request_name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
