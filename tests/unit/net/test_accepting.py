"""Accepting: what sockets are set to; and when the process has no descriptors left, in a process of its own, on each event
loop that is installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import subprocess
import sys

import pytest

from odradek.net.accepting import listen

PROGRAM = """
import asyncio, importlib, logging, os, resource, socket, sys
from odradek.net.listening import OpenListener, ServerLimits
from odradek.net.server import Server

class Echo:
    def handle(self, connection, frame):
        return [len(frame).to_bytes(4, "big") + bytes(frame)]

async def closed(sock):
    try:
        return await asyncio.get_running_loop().sock_recv(sock, 1) == b""
    except ConnectionResetError:
        return True

async def main():
    loop = asyncio.get_running_loop()
    server = Server(Echo(), ServerLimits(), now=loop.time)
    server.pipeline_of = lambda _: 0  # requests overlap
    port = await server.listen(OpenListener(name="PLAINTEXT"), "127.0.0.1", 0)
    crowd = [socket.socket() for _ in range(40)]
    next_one = socket.socket()
    next_one.setblocking(False)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 10, hard))
    for sock in crowd:
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", port))
    assert await closed(crowd[-1])
    assert 0 < server.connection_count < 20, server.connection_count
    await asyncio.sleep(0.3)  # it listens again
    for sock in crowd:
        sock.shutdown(socket.SHUT_RDWR)  # the descriptor stays taken on this side
    await loop.sock_connect(next_one, ("127.0.0.1", port))
    await loop.sock_sendall(next_one, b"\\0\\0\\0\\2hi")
    assert await loop.sock_recv(next_one, 6) == b"\\0\\0\\0\\2hi", "who left has made room"
    for sock in crowd:
        sock.close()
    next_one.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\\\\0\\\\0\\\\0\\\\2hi")
    assert await reader.readexactly(6) == b"\\\\0\\\\0\\\\0\\\\2hi"
    writer.close()
    await server.stop(drain_seconds=0)

logging.basicConfig(level=logging.ERROR)
with asyncio.Runner(loop_factory=importlib.import_module(sys.argv[1]).new_event_loop) as runner:
    runner.run(main())
""".replace("\\\\", "\\")
LOOPS = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]


@pytest.mark.parametrize("loop", LOOPS)
def test_connections_without_a_descriptor_are_closed_and_later_ones_are_served(loop: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, loop], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", None])
@pytest.mark.parametrize("loop", LOOPS)
def test_small_answers_do_not_wait_for_each_other(loop: str, host: str | None) -> None:
    async def look() -> int:
        made: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        class FirstConnection(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted = transport.get_extra_info("socket")
                made.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
                transport.close()

        listening = await listen(FirstConnection, host, 0, backlog=1)
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
            writer.close()
            return await asyncio.wait_for(made, 30)
        finally:
            listening.close()

    with asyncio.Runner(loop_factory=importlib.import_module(loop).new_event_loop) as runner:
        assert runner.run(look())
