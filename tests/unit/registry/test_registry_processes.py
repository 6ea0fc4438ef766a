"""The embedded registry between real processes: one that is killed, one that is stopped, several that write at once."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.kit.waiting import until

from odradek.registry import Create, EmbeddedRegistry
from odradek.registry.shared_journal import JOURNAL_NAME
from odradek.runtime.real import real_runtime

_CHILD = """
import asyncio, sys
from odradek.registry import Create, EmbeddedRegistry, Put, RegistryConflict, RegistryError, SessionExpired
from odradek.registry import shared_journal
from odradek.runtime.real import real_runtime

shared_journal.SLACK_BYTES = 20_000

async def increment(registry):
    while True:
        await registry.sync()
        node = await registry.get("/counter")
        value = b"%d" % (int(node.data) + 1)
        try:
            await registry.commit([Put(path="/counter", data=value.rjust(500), version=node.version)])
        except RegistryConflict:
            continue
        print("incremented", flush=True)

async def main():
    registry = EmbeddedRegistry.open(real_runtime(), sys.argv[1], session_timeout_s=float(sys.argv[2]))
    await registry.commit([Create(path=f"/ids/{sys.argv[3]}", data=b"", ephemeral=True)])
    print("ready", flush=True)
    counting = asyncio.ensure_future(asyncio.sleep(0))
    while line := await asyncio.to_thread(sys.stdin.readline):
        word = line.strip()
        if word == "count":
            counting = asyncio.ensure_future(increment(registry))
        elif word == "stop":
            counting.cancel()
            await registry.close()
            print("stopped", flush=True)
            return
        else:
            try:
                await registry.commit([Create(path=word, data=b"")])
                print("done", flush=True)
            except SessionExpired:
                await registry.renew()
                print("expired", flush=True)

asyncio.run(main())
"""


class Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        await self.process.stdin.drain()

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), 30)).decode().strip()

    async def rest(self) -> list[str]:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.read(), 30)).decode().split()


@asynccontextmanager
async def child(directory: Path, name: str, *, session_timeout_s: float = 3600) -> AsyncIterator[Child]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _CHILD, str(directory), str(session_timeout_s), name),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    started = Child(process)
    try:
        assert await started.line() == "ready"
        yield started
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def registry_in(directory: Path) -> AsyncIterator[EmbeddedRegistry]:
    registry = EmbeddedRegistry.open(real_runtime(), str(directory))
    try:
        yield registry
    finally:
        await registry.close()


async def stop_without_the_lock(other: Child, registry: EmbeddedRegistry) -> None:
    """A process that is stopped in the middle of a write keeps the others from writing, until it goes on or is killed."""
    for _ in range(100):
        other.process.send_signal(signal.SIGSTOP)
        try:
            async with asyncio.timeout(1):
                await registry.commit([Create(path=f"/passing/{time.monotonic_ns()}", data=b"")])
        except TimeoutError:
            other.process.send_signal(signal.SIGCONT)
        else:
            return
    raise AssertionError("the other process always holds the lock")


async def test_a_killed_process_loses_its_nodes_at_once_whatever_the_timeout(tmp_path: Path) -> None:
    async with registry_in(tmp_path) as registry:
        event = asyncio.Event()
        async with child(tmp_path, "1") as other:
            await registry.sync()
            assert await registry.children("/ids") == ["1"]
            registry.watch("/ids", event.set)
            other.process.kill()
            await asyncio.wait_for(event.wait(), 30)
            assert await registry.children("/ids") == []


async def test_a_stopped_process_expires_and_can_commit_nothing_when_it_goes_on(tmp_path: Path) -> None:
    async with registry_in(tmp_path) as registry, child(tmp_path, "1", session_timeout_s=1) as other:
        registry.watch("/ids", lambda: None)
        await registry.sync()
        assert await registry.children("/ids") == ["1"]
        await stop_without_the_lock(other, registry)
        await other.tell("/late")

        async def gone() -> bool:
            return await registry.children("/ids") == []

        await until(gone)
        other.process.send_signal(signal.SIGCONT)
        assert await other.line() == "expired"
        await other.tell("/in-its-new-session")
        assert await other.line() == "done"
        await registry.sync()
        assert await registry.get("/late") is None
        assert await registry.get("/in-its-new-session") is not None


async def test_a_process_that_only_waits_keeps_its_session(tmp_path: Path) -> None:
    async with registry_in(tmp_path) as registry, child(tmp_path, "1", session_timeout_s=6) as other:
        registry.watch("/ids", lambda: None)
        for number in range(65):  # longer than the timeout
            await registry.commit([Create(path=f"/passing/{number}", data=b"")])
            await asyncio.sleep(0.1)
        assert await registry.children("/ids") == ["1"]
        await other.tell("/alive")
        assert await other.line() == "done"


async def test_no_increment_of_several_processes_is_lost_though_they_are_killed_and_the_journal_is_rewritten(
    tmp_path: Path,
) -> None:
    async with registry_in(tmp_path) as registry:
        await registry.commit([Create(path="/counter", data=b"0")])
        counted = 0
        async with child(tmp_path, "a") as first, child(tmp_path, "b") as second:
            await first.tell("count")
            await second.tell("count")
            for _ in range(3):
                async with child(tmp_path, "short") as short:
                    await short.tell("count")
                    for _ in range(10):
                        assert await short.line() == "incremented"
                    short.process.kill()
                    counted += 10 + (await short.rest()).count("incremented")
            for other in (first, second):
                await other.tell("stop")
                words = await other.rest()
                assert words[-1] == "stopped"
                counted += words.count("incremented")
        await registry.sync()
        node = await registry.get("/counter")
        assert node is not None
        assert counted <= int(node.data) <= counted + 5, "one of each process may be unheard"
        assert node.version == int(node.data)
        assert (tmp_path / JOURNAL_NAME).read_bytes()[:80].count(b'"generation"') == 1
        assert await registry.children("/ids") == []


async def test_processes_that_start_at_once_in_an_empty_directory_share_one_journal(tmp_path: Path) -> None:
    async def join(name: str) -> None:
        async with child(tmp_path, name) as other:
            await other.tell(f"/joined/{name}")
            assert await other.line() == "done"
            await other.tell("stop")
            assert await other.line() == "stopped"

    await asyncio.gather(*(join(str(number)) for number in range(3)))
    async with registry_in(tmp_path) as registry:
        assert await registry.children("/joined") == ["0", "1", "2"]
        assert await registry.children("/ids") == []
