"""The embedded registry: what was committed survives, what was torn is cut, what is damaged is refused."""

from pathlib import Path

import pytest

from odradek.registry import Create, Delete, EmbeddedRegistry, Put, RegistryConflict, RegistryError
from odradek.registry.embedded import JOURNAL_NAME
from odradek.runtime.ports import Runtime
from odradek.runtime.real import real_runtime


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


async def test_a_long_history_is_rewritten_as_its_outcome(runtime: Runtime, tmp_path: Path) -> None:
    registry = EmbeddedRegistry.open(runtime, str(tmp_path))
    await registry.commit([Create(path="/counter", data=b"")])
    for version in range(100):
        await registry.commit([Put(path="/counter", data=b"x" * 1000, version=version)])
    await registry.close()
    before = (tmp_path / JOURNAL_NAME).stat().st_size
    reopened = EmbeddedRegistry.open(runtime, str(tmp_path))
    assert (tmp_path / JOURNAL_NAME).stat().st_size < before / 50
    node = await reopened.get("/counter")
    assert node is not None
    assert node.version == 100


async def test_a_closed_registry_accepts_nothing(runtime: Runtime, tmp_path: Path) -> None:
    registry = await filled(runtime, tmp_path)
    await registry.close()
    with pytest.raises(RegistryError):
        await registry.commit([Create(path="/x", data=b"")])
