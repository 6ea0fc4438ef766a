"""The embedded registry: what was committed survives, what was torn is cut, what is damaged is refused."""

import asyncio
import errno
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.registry import Create, Delete, EmbeddedRegistry, Node, Put, RegistryConflict, RegistryError
from odradek.registry.embedded import JOURNAL_NAME
from odradek.registry.journal import line_of
from odradek.registry.shared_journal import LOCK_NAME
from odradek.runtime.ports import Runtime
from odradek.runtime.real import PosixFile, real_runtime
from odradek.testing.guarded_disk import off_loop


@pytest.fixture
def runtime() -> Runtime:
    return real_runtime()


async def filled(runtime: Runtime, directory: Path) -> EmbeddedRegistry:
    registry = EmbeddedRegistry.open(runtime, str(directory))
    await registry.commit([Create(path="/topics/a", data=b"1"), Create(path="/topics/b", data=b"2")])
    await registry.commit([Put(path="/topics/a", data=b"3", version=0), Delete(path="/topics/b", version=0)])
    return registry


async def test_committed_writes_are_read_back_after_reopening(runtime: Runtime, tmp_path: Path) -> None:
    registry = await filled(runtime, tmp_path)
    await registry.close()
    reopened = EmbeddedRegistry.open(runtime, str(tmp_path))
    node = await reopened.get("/topics/a")
    assert node is not None
    assert (node.data, node.version) == (b"3", 1)
    assert await reopened.get("/topics/b") is None
    assert await reopened.children("/topics") == ["a"]


async def test_a_commit_applies_as_a_whole_or_not_at_all(runtime: Runtime, tmp_path: Path) -> None:
    registry = await filled(runtime, tmp_path)
    with pytest.raises(RegistryConflict):
        await registry.commit([Create(path="/topics/c", data=b""), Create(path="/topics/a", data=b"")])
    assert await registry.get("/topics/c") is None


@pytest.mark.parametrize(
    "operation",
    [
        Create(path="/topics/a", data=b""),
        Put(path="/topics/a", data=b"", version=0),
        Put(path="/topics/none", data=b"", version=0),
        Delete(path="/topics/a", version=7),
        Delete(path="/topics/none", version=0),
    ],
)
async def test_a_write_that_lost_a_race_is_refused(
    runtime: Runtime, tmp_path: Path, operation: Create | Put | Delete
) -> None:
    registry = await filled(runtime, tmp_path)
    with pytest.raises(RegistryConflict):
        await registry.commit([operation])


async def test_a_journal_cut_at_any_byte_of_its_last_line_loses_that_commit_alone(
    runtime: Runtime, tmp_path: Path
) -> None:
    registry = await filled(runtime, tmp_path)
    await registry.close()
    journal = tmp_path / JOURNAL_NAME
    whole = journal.read_bytes()
    last_line = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    for length in range(last_line, len(whole)):
        journal.write_bytes(whole[:length])
        (tmp_path / LOCK_NAME).unlink()  # the power cut that tore the line came before anyone heard of it
        reopened = EmbeddedRegistry.open(runtime, str(tmp_path))
        node = await reopened.get("/topics/a")
        assert node is not None
        assert node.data == b"1"
        await reopened.commit([Put(path="/topics/a", data=b"again", version=0)])
        await reopened.close()
        node = await EmbeddedRegistry.open(runtime, str(tmp_path)).get("/topics/a")
        assert node is not None
        assert node.data == b"again"


async def test_damage_before_the_last_line_is_refused_with_the_file_and_the_place(
    runtime: Runtime, tmp_path: Path
) -> None:
    registry = await filled(runtime, tmp_path)
    await registry.close()
    journal = tmp_path / JOURNAL_NAME
    damaged = bytearray(journal.read_bytes())
    damaged[12] ^= 1
    journal.write_bytes(damaged)
    with pytest.raises(RegistryError, match=rf"{JOURNAL_NAME} is damaged at byte 0"):
        EmbeddedRegistry.open(runtime, str(tmp_path))


async def test_a_long_history_is_rewritten_as_its_outcome_while_it_grows(
    runtime: Runtime, tmp_path: Path
) -> None:
    registry = EmbeddedRegistry.open(runtime, str(tmp_path))
    await registry.commit([Create(path="/counter", data=b"")])
    for version in range(150):
        await registry.commit([Put(path="/counter", data=b"x" * 1000, version=version)])
        assert (tmp_path / JOURNAL_NAME).stat().st_size < 70_000
    await registry.close()
    reopened = EmbeddedRegistry.open(runtime, str(tmp_path))
    node = await reopened.get("/counter")
    assert node is not None
    assert (node.version, node.created) == (150, 1)
    await reopened.commit([Create(path="/later", data=b"")])
    later = await reopened.get("/later")
    assert later is not None
    assert later.created == 152


async def test_a_long_history_is_rewritten_as_its_outcome_when_it_is_opened(
    runtime: Runtime, tmp_path: Path
) -> None:
    journal = tmp_path / JOURNAL_NAME
    lines = [line_of([("/counter", Node(data=b"x" * 1000, version=version))]) for version in range(101)]
    journal.write_bytes(b"".join(lines))
    reopened = EmbeddedRegistry.open(runtime, str(tmp_path))
    assert journal.stat().st_size < len(lines[0]) * 2
    node = await reopened.get("/counter")
    assert node is not None
    assert node.version == 100


async def test_a_journal_from_before_sessions_is_read(runtime: Runtime, tmp_path: Path) -> None:
    bodies = [
        b'[{"path":"/a","data":"MQ==","version":0},{"path":"/b","data":"","version":0}]',
        b'[{"path":"/a","data":"Mg==","version":1}]',
        b'[{"path":"/b"}]',
        b'[{"path":"/b","data":"","version":0}]',
    ]
    journal = tmp_path / JOURNAL_NAME
    journal.write_bytes(b"".join(b"%08x %s\n" % (zlib.crc32(body), body) for body in bodies))
    registry = EmbeddedRegistry.open(runtime, str(tmp_path))
    assert await registry.get("/a") == Node(data=b"2", version=1, created=1)
    assert await registry.get("/b") == Node(data=b"", version=0, created=4)


async def test_a_closed_registry_accepts_nothing(runtime: Runtime, tmp_path: Path) -> None:
    registry = await filled(runtime, tmp_path)
    await registry.close()
    with pytest.raises(RegistryError):
        await registry.commit([Create(path="/x", data=b"")])


class SlowOffload:
    """Work goes to the end even when nothing waits for it any more, as it does on a thread; `begin` lets it start."""

    def __init__(self) -> None:
        self.begin = asyncio.Event()
        self.started = asyncio.Event()

    async def run(self, work: Callable[..., Any], *arguments: object) -> Any:
        async def on_its_thread() -> Any:
            await self.begin.wait()
            with off_loop():
                return work(*arguments)

        self.started.set()
        return await asyncio.shield(asyncio.ensure_future(on_its_thread()))


async def test_a_commit_whose_caller_gives_up_is_whole_and_the_next_one_follows_it(
    runtime: Runtime, tmp_path: Path
) -> None:
    offload = SlowOffload()
    registry = EmbeddedRegistry.open(replace(runtime, offload=offload), str(tmp_path))
    first = asyncio.ensure_future(registry.commit([Create(path="/a", data=b"x" * 500)]))
    await offload.started.wait()
    first.cancel()
    second = asyncio.ensure_future(registry.commit([Create(path="/b", data=b"2")]))
    with pytest.raises(asyncio.CancelledError):
        await first
    offload.begin.set()
    await second
    await registry.close()
    reopened = EmbeddedRegistry.open(runtime, str(tmp_path))
    assert await reopened.children("/") == ["a", "b"]
    await reopened.close()


async def test_a_full_disk_refuses_a_commit_and_takes_the_next_one(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = await filled(runtime, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(PosixFile, "sync", _no_space)
        with pytest.raises(RegistryError, match="No space left"):
            await registry.commit([Create(path="/topics/c", data=b"1")])
    assert await registry.get("/topics/c") is None
    await registry.close()
    reopened = EmbeddedRegistry.open(runtime, str(tmp_path))
    await reopened.commit([Create(path="/topics/d", data=b"1")])
    assert await reopened.children("/topics") == ["a", "d"]
    await reopened.close()


async def test_a_journal_that_cannot_be_opened_is_one_clear_sentence(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PosixFile, "sync", _no_space)
    with pytest.raises(RegistryError, match=r"registry\.journal.*No space left"):
        EmbeddedRegistry.open(runtime, str(tmp_path))


def _no_space(_: PosixFile) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
