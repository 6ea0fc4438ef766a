"""Both stores, one contract; and what only a store on disk must do."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.model.errors import ConfigError
from odradek.views.memory_store import InMemoryViewStore
from odradek.views.rocksdb_store import RocksDBLimits, RocksDBStore
from odradek.views.store import AppliedPosition, StoreError, ViewState, ViewStore

KEYS = st.binary(max_size=3)
CHANGES = st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=6)
_ROCKS = {"rocksdb": True, "memory": False}


def state(offset: int = 0, *, topic: str = "totals", is_complete: bool = False) -> ViewState:
    return ViewState(
        topic=topic,
        topic_id=UUID(int=7),
        key_format="string",
        is_complete=is_complete,
        positions={
            0: AppliedPosition(offset=offset, leader_epoch=3, complete_at_ms=11),
            12: AppliedPosition(offset=1),
        },
    )


@pytest.fixture(params=["memory", "rocksdb"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], ViewStore]]:
    stores: list[ViewStore] = []

    def make() -> ViewStore:
        on_disk = request.param == "rocksdb"
        where = tmp_path / str(len(stores))
        stores.append(RocksDBStore(where, topic="totals") if on_disk else InMemoryViewStore())
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(CHANGES, max_size=5), start=KEYS, end=st.none() | KEYS, limit=st.integers(1, 5))
def test_a_store_is_a_sorted_dictionary(
    make_store: Callable[[], ViewStore],
    batches: list[dict[bytes, bytes | None]],
    start: bytes,
    end: bytes | None,
    limit: int,
) -> None:
    store = make_store()
    rows: dict[bytes, bytes] = {}
    for number, changes in enumerate(batches):
        store.apply(changes, state(number))
        rows |= {key: value for key, value in changes.items() if value is not None}
        rows = {key: value for key, value in rows.items() if changes.get(key, b"") is not None}
        store.scan(b"", None, 1)
    assert store.count() == len(rows)
    assert {key: store.get(key) for key in rows} == rows
    assert store.get(b"not there") is None
    wanted = sorted(
        (key, value) for key, value in rows.items() if key >= start and (end is None or key < end)
    )
    assert list(store.scan(start, end, limit)) == wanted[:limit]
    store.close()


def test_clear_removes_rows_and_positions_and_keeps_what_is_new(make_store: Callable[[], ViewStore]) -> None:
    store = make_store()
    assert store.state() is None
    store.apply({b"a": b"1"}, state(5, is_complete=True))
    store.clear(ViewState(topic="totals", key_format="long", positions={1: AppliedPosition(offset=2)}))
    assert store.count() == 0
    kept = store.state()
    assert kept is not None
    assert (kept.key_format, kept.is_complete, list(kept.positions)) == ("long", False, [1])


def test_a_scan_ends_early_when_rows_are_large(make_store: Callable[[], ViewStore]) -> None:
    store = make_store()
    store.apply({b"%d" % number: bytes(1 << 20) for number in range(9)}, state())
    assert 1 <= len(store.scan(b"", None, 1_000)) < 9


def test_a_closed_store_says_so(make_store: Callable[[], ViewStore]) -> None:
    store = make_store()
    store.close()
    store.close()
    for use in (lambda: store.get(b"a"), lambda: store.scan(b"", None, 1), lambda: store.apply({}, state())):
        with pytest.raises(StoreError, match="closed"):
            use()


# -- on disk


@pytest.fixture
def reopen(tmp_path: Path) -> Iterator[Callable[[], RocksDBStore]]:
    """Opens the same directory again; whatever was open is closed first."""
    stores: list[RocksDBStore] = []

    def again(topic: str = "totals") -> RocksDBStore:
        for store in stores:
            store.close()
        stores.append(RocksDBStore(tmp_path / "view", topic=topic))
        return stores[-1]

    yield again
    for store in stores:
        store.close()


def test_rows_and_positions_outlive_the_store(reopen: Callable[[], RocksDBStore]) -> None:
    reopen().apply({b"a": b"1", b"b": b"2"}, state(5))
    reopen().apply({b"a": None}, state(6, is_complete=True))
    store = reopen()
    assert store.state() == state(6, is_complete=True)
    assert list(store.scan(b"", None, 9)) == [(b"b", b"2")]


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*", "*.sst"])
@pytest.mark.parametrize("damage", ["gone", "empty"])
def test_a_database_that_cannot_be_read_is_begun_again(
    reopen: Callable[[], RocksDBStore], tmp_path: Path, name: str, damage: str
) -> None:
    reopen().apply({b"a": b"1"}, state(5))
    reopen().close()
    for path in (tmp_path / "view" / "rocksdb").glob(name):
        path.unlink()
        if damage == "empty":
            path.touch()
    store = reopen()
    assert store.state() is None
    assert store.get(b"a") is None
    store.apply({b"a": b"2"}, state(1))


def test_rot_is_one_error_and_the_next_opening_begins_again(
    reopen: Callable[[], RocksDBStore], tmp_path: Path
) -> None:
    reopen().apply({b"key-%04d" % number: bytes(50) for number in range(2_000)}, state(5))
    store = reopen()
    for path in (tmp_path / "view" / "rocksdb").glob("*.sst"):
        data = bytearray(path.read_bytes())
        middle = len(data) // 4
        data[middle : middle + 200] = bytes(200)
        path.write_bytes(data)
    for look in (lambda: store.scan(b"", None, 1_000), store.count):
        with pytest.raises(StoreError, match="open it again: it is built again"):
            look()
    assert reopen().state() is None


def test_a_directory_is_for_one_view(reopen: Callable[..., RocksDBStore], tmp_path: Path) -> None:
    reopen()
    with pytest.raises(StoreError, match="open elsewhere"):
        RocksDBStore(tmp_path / "view", topic="totals")
    with pytest.raises(ConfigError, match="holds a view of 'totals'"):
        reopen("others")


def test_a_directory_of_someone_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="of its own"):
        RocksDBStore(tmp_path, topic="totals")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_directory_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be opened"):
        RocksDBStore(tmp_path / "file" / "view", topic="totals")


def test_an_older_copy_is_a_whole_one(reopen: Callable[[], RocksDBStore], tmp_path: Path) -> None:
    store = reopen()
    store.apply({b"a": b"1"}, state(5))
    store.close()
    shutil.copytree(tmp_path / "view", tmp_path / "copy")
    reopen().apply({b"a": b"2"}, state(6))
    copy = RocksDBStore(tmp_path / "copy", topic="totals")
    try:
        assert (copy.get(b"a"), copy.state()) == (b"1", state(5))
    finally:
        copy.close()


_CHILD = """
    import resource, sys
    from pathlib import Path
    from odradek.views.rocksdb_store import RocksDBLimits, RocksDBStore
    from odradek.views.store import AppliedPosition, StoreError, ViewState

    directory, file_bytes_max = Path(sys.argv[1]), int(sys.argv[2])
    store = RocksDBStore(directory, topic="totals", limits=RocksDBLimits(write_buffer_bytes=64 << 10))
    if file_bytes_max:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))
    offset = 0
    try:
        while True:
            offset += 1
            position = AppliedPosition(offset=offset)
            rows = {b"%04d" % (offset % 1000): b"%d" % offset + bytes(200), b"last": b"%d" % offset}
            store.apply(rows, ViewState(topic="totals", key_format="string", positions={0: position}))
            print(offset, flush=True)
    except StoreError as error:
        print("error", error, flush=True)
        sys.stdin.read()
"""


def _child(directory: Path, file_bytes_max: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_CHILD), str(directory), str(file_bytes_max)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("batches", [700, 2_500, 6_000])
def test_kill_9_leaves_exactly_the_rows_below_the_position(tmp_path: Path, batches: int) -> None:
    child = _child(tmp_path / "view")
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= batches:
            break
    child.send_signal(signal.SIGKILL)
    child.communicate()
    store = RocksDBStore(tmp_path / "view", topic="totals")
    try:
        kept = store.state()
        offset = 0 if kept is None else kept.positions[0].offset
        assert store.get(b"last") == (b"%d" % offset if offset else None)
        rows = dict(store.scan(b"", b"last", 1_000))
        assert rows == {
            b"%04d" % (number % 1000): b"%d" % number + bytes(200)
            for number in range(max(1, offset - 999), offset + 1)
        }
        assert offset > 0 or batches < 2_500
    finally:
        store.close()


def test_a_full_disk_is_one_error_and_the_view_goes_on_when_there_is_room(tmp_path: Path) -> None:
    child = _child(tmp_path / "view", file_bytes_max=30_000)
    assert child.stdout is not None
    message = next(line for line in child.stdout if line.startswith("error"))
    assert "KAFKA_STORAGE_ERROR" in message
    assert "it continues where it was" in message
    child.kill()
    child.communicate()
    store = RocksDBStore(tmp_path / "view", topic="totals")
    try:
        kept = store.state()
        offset = 0 if kept is None else kept.positions[0].offset
        assert store.get(b"last") == (b"%d" % offset if offset else None)
        store.apply({b"last": b"again"}, state(offset + 1))
        store.flush()
    finally:
        store.close()


def test_descriptors_and_memory_are_bounded_by_the_limits() -> None:
    limits = RocksDBLimits()
    assert limits.open_files_max <= 256
    assert limits.block_cache_bytes + limits.write_buffer_bytes * limits.write_buffer_count <= 128 << 20
