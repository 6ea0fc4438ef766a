"""A view of a real topic: what it answers, and how it goes on."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kit.waiting import eventually

from odradek import Admin, ConfigError, ErrorCode, KafkaError, Producer, TopicPartition
from odradek.client.network.errors import ClientClosedError
from odradek.telemetry.events import event_of
from odradek.testing.local import LocalBroker
from odradek.views import AsyncTableView, RocksDBLimits, TableRow, TableView, ViewStatus, WindowedKey
from odradek.views.store import StoreError

MakeTopic = Callable[..., str]
OpenView = Callable[..., TableView]
Send = Callable[..., None]


@pytest.fixture(params=["memory", "rocksdb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Where the rows are."""
    return {"directory": tmp_path / "view"} if request.param == "rocksdb" else {}


def test_a_view_has_the_last_value_of_each_key(
    make_topic: MakeTopic, send: Send, open_view: OpenView, place: dict[str, Any]
) -> None:
    topic = make_topic(3)
    send(topic, {b"ann": b"1", b"bob": b'{"n": 2}', b"cid": b"3"})
    send(topic, {b"ann": b"4", b"bob": None})
    view = open_view(topic, **place)
    assert (view["ann"], view.get("bob"), view.get("bob", 0), view["cid"]) == (4, None, 0, 3)
    assert "bob" not in view
    assert len(view) == 2
    assert list(view) == [TableRow("ann", 4), TableRow("cid", 3)]
    with pytest.raises(KeyError):
        view["bob"]
    send(topic, {b"dan": b"5", b"ann": None})
    view.wait_until("now")
    assert dict(view) == {"cid": 3, "dan": 5}
    freshness = view.freshness()
    assert (freshness.status, freshness.lag, freshness.problem) == (ViewStatus.LIVE, 0, None)
    assert all(partition.looked_at_ms for partition in freshness.partitions)


def test_ranges_and_prefixes_are_in_the_order_of_keys(
    make_topic: MakeTopic, send: Send, open_view: OpenView, place: dict[str, Any]
) -> None:
    topic = make_topic(2)
    send(topic, {b"%04d" % number: b"%d" % number for number in range(2_500)})
    view = open_view(topic, **place)
    assert [row.value for row in view.range("0010", "0013")] == [10, 11, 12]
    assert [row.value for row in view.range("2498")] == [2498, 2499]
    assert [row.value for row in view.range(None, "0002")] == [0, 1]
    assert [row.value for row in view.prefix("001")] == list(range(10, 20))
    assert [row.value for row in view] == list(range(2_500))


def test_numbers_as_keys_have_ranges_by_size(make_topic: MakeTopic, send: Send, open_view: OpenView) -> None:
    topic = make_topic(2)
    send(topic, {struct.pack(">q", number): struct.pack(">d", number / 2) for number in (-5, -1, 0, 7, 300)})
    view = open_view(topic, key="long", value="double")
    assert list(view.range(-1, 300)) == [(-1, -0.5), (0, 0.0), (7, 3.5)]
    with pytest.raises(KafkaError, match="no prefixes"):
        view.prefix(1)
    with pytest.raises(KafkaError, match="a whole number") as caught:
        view.get("7")
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_json_keys_are_the_same_however_they_were_written(
    make_topic: MakeTopic, send: Send, open_view: OpenView
) -> None:
    topic = make_topic()
    send(topic, {b'{"b": 1, "a": [2]}': b"1", b'["ann", 10]': b"2", b'["ann",9]': b"3", b'["bob",1]': b"4"})
    view = open_view(topic, key="json")
    assert view[{"a": [2], "b": 1}] == 1
    assert [row.key for row in view.prefix(["ann"])] == [["ann", 9], ["ann", 10]]


def test_windows_of_a_key(make_topic: MakeTopic, send: Send, open_view: OpenView) -> None:
    topic = make_topic()
    send(topic, {b"ann" + struct.pack(">q", at): b"%d" % at for at in (0, 60_000, 120_000)})
    send(topic, {b"anna" + struct.pack(">q", 0): b"9"})
    view = open_view(topic, windows="1 minute")
    assert list(view.windows("ann", 60_000)) == [
        (WindowedKey("ann", at, at + 60_000), at) for at in (60_000, 120_000)
    ]
    assert [row.value for row in view.windows("ann", 0, 60_000)] == [0]
    assert view["ann", 120_000] == 120_000
    plain = open_view(topic, key="bytes")
    with pytest.raises(ConfigError, match="no windows"):
        plain.windows("ann")


def test_only_committed_records_are_in_a_view(
    odradek_broker: LocalBroker, make_topic: MakeTopic, open_view: OpenView
) -> None:
    topic = make_topic()
    view = open_view(topic)
    with Producer(odradek_broker.address, transactional_id=topic) as producer:
        producer.init_transactions()
        for key, commit in ((b"aborted", False), (b"committed", True)):
            producer.begin_transaction()
            producer.send(topic, b"1", key=key)
            producer.flush()
            view.wait_until("now")
            assert key.decode() not in view
            producer.commit_transaction() if commit else producer.abort_transaction()
        # As in Kafka, a commit is answered before its marker is written, so "now" may be before the commit.
        rows = eventually(lambda: [row.key for row in view], "the row that was committed")
        assert rows == ["committed"]
        view.wait_until("now")
        assert view.freshness().lag == 0


def test_a_view_waits_for_what_was_written(
    odradek_broker: LocalBroker, make_topic: MakeTopic, open_view: OpenView
) -> None:
    topic = make_topic()
    view = open_view(topic)
    with Producer(odradek_broker.address) as producer:
        for number in range(20):
            offset = producer.send(topic, b"%d" % number, key=b"ann").result().offset
            view.wait_until({TopicPartition(topic, 0): offset + 1})
            assert view["ann"] == number
    with pytest.raises(KafkaError, match="partition 0 is at 20, and should be at 21"):
        view.wait_until({0: 21}, timeout_s=0.05)
    with pytest.raises(ConfigError, match="'now'"):
        view.wait_until("soon")


def test_keys_that_cannot_be_read_are_left_out_and_counted(
    make_topic: MakeTopic, send: Send, open_view: OpenView
) -> None:
    topic = make_topic(**{"cleanup.policy": "delete"})
    send(topic, {None: b"0", b"short": b"1", struct.pack(">q", 5): b"2"})
    view = open_view(topic, key="long")
    assert (dict(view), view.freshness().skipped_count) == ({5: 2}, 2)


def test_values_that_cannot_be_read_are_one_error(
    make_topic: MakeTopic, send: Send, open_view: OpenView
) -> None:
    topic = make_topic()
    send(topic, {b"ann": b"{"})
    view = open_view(topic)
    with pytest.raises(KafkaError, match="value of key 'ann' is not json") as caught:
        view.get("ann")
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_topic_that_is_not_there_is_one_error(open_view: OpenView) -> None:
    with pytest.raises(KafkaError, match="nowhere"):
        open_view("nowhere", default_api_timeout_ms=300)


def test_a_closed_view_says_so(make_topic: MakeTopic, open_view: OpenView) -> None:
    view = open_view(make_topic())
    view.close()
    view.close()
    with pytest.raises(ClientClosedError):
        view.get("ann")


def test_partitions_that_are_added_are_read(
    odradek_broker: LocalBroker, make_topic: MakeTopic, send: Send, open_view: OpenView
) -> None:
    topic = make_topic()
    view = open_view(topic, metadata_max_age_ms=200)
    with Admin(odradek_broker.address) as admin:
        admin.create_partitions({topic: 3})
    send(topic, {b"ann": b"1"}, partition=2)
    view.wait_until({2: 1})
    assert view["ann"] == 1


async def test_the_asynchronous_view_answers_the_same(
    odradek_broker: LocalBroker, make_topic: MakeTopic, send: Send, place: dict[str, Any]
) -> None:
    topic = make_topic(2)
    send(topic, {b"ann": b"1", b"bob": b"2", b"cid": b"3"})
    async with await AsyncTableView.open(odradek_broker.address, topic, timeout_s=60, **place) as view:
        await view.wait_until("now")
        assert (await view.get("bob"), await view.count()) == (2, 3)
        assert [row async for row in view.range("b")] == [("bob", 2), ("cid", 3)]
        assert view.freshness().lag == 0


def test_two_views_answer_for_all_keys(make_topic: MakeTopic, send: Send, open_view: OpenView) -> None:
    topic = make_topic(4)
    views = [open_view(topic), open_view(topic)]
    send(topic, {b"%d" % number: b"1" for number in range(50)})
    for view in views:
        view.wait_until("now")
        assert len(view) == 50


# -- what is kept, and when it may be continued


class _Reopening:
    """A view on disk, opened again and again; `was_rebuilt` says what the last opening did."""

    def __init__(self, open_view: OpenView, directory: Path, topic: str) -> None:
        self.directory, self.topic = directory, topic
        self._open = open_view
        self.view = self._open(topic, directory=directory)

    def again(self, **more: Any) -> TableView:
        self.view.close()
        self.view = self._open(self.topic, directory=self.directory, **more)
        return self.view


@pytest.fixture
def reopening(make_topic: MakeTopic, send: Send, open_view: OpenView, tmp_path: Path) -> _Reopening:
    topic = make_topic()
    send(topic, {b"ann": b"1", b"bob": b"2"})
    return _Reopening(open_view, tmp_path / "view", topic)


def rebuilds(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.__dict__["odradek_values"]["reason"]
        for record in caplog.records
        if event_of(record) == "view_rebuilt"
    ]


def test_a_view_goes_on_where_it_was(
    reopening: _Reopening, send: Send, caplog: pytest.LogCaptureFixture
) -> None:
    reopening.view.close()
    send(reopening.topic, {b"ann": b"3"})
    assert dict(reopening.again()) == {"ann": 3, "bob": 2}
    assert rebuilds(caplog) == []


@pytest.mark.parametrize("what", ["deleted", "emptied"])
def test_a_directory_that_went_away_is_filled_again(reopening: _Reopening, what: str) -> None:
    reopening.view.close()
    shutil.rmtree(reopening.directory)
    if what == "emptied":
        reopening.directory.mkdir()
    assert dict(reopening.again()) == {"ann": 1, "bob": 2}


def test_a_directory_that_goes_away_in_use_is_one_error_at_the_latest_when_it_is_written(
    reopening: _Reopening, send: Send
) -> None:
    shutil.rmtree(reopening.directory)
    send(reopening.topic, {b"ann": b"3"})
    reopening.view.wait_until("now")
    with pytest.raises(StoreError, match="cannot be written"):
        reopening.view.close()
    assert dict(reopening.again()) == {"ann": 3, "bob": 2}


def test_a_view_that_cannot_write_any_more_fails_with_one_error(
    make_topic: MakeTopic, send: Send, open_view: OpenView, tmp_path: Path
) -> None:
    topic = make_topic()
    view = open_view(topic, directory=tmp_path / "view", limits=RocksDBLimits(write_buffer_bytes=64 << 10))
    shutil.rmtree(tmp_path / "view")

    def fill() -> None:
        for number in range(200):
            send(topic, {b"%d-%d" % (number, row): bytes(1_000) for row in range(50)})
            view.wait_until("now")

    with pytest.raises(StoreError, match="cannot be written"):
        fill()
    assert view.freshness().status is ViewStatus.FAILED
    assert "cannot be written" in (view.freshness().problem or "")
    with pytest.raises(StoreError, match="open it again"):
        view.get("0-0")


def test_an_older_copy_is_continued(reopening: _Reopening, send: Send, tmp_path: Path) -> None:
    reopening.view.close()
    shutil.copytree(reopening.directory, tmp_path / "copy")
    send(reopening.topic, {b"ann": None, b"cid": b"3"})
    reopening.again().close()
    shutil.rmtree(reopening.directory)
    (tmp_path / "copy").rename(reopening.directory)
    assert dict(reopening.again()) == {"bob": 2, "cid": 3}


def test_another_key_format_builds_it_again(reopening: _Reopening, caplog: pytest.LogCaptureFixture) -> None:
    assert [row.key for row in reopening.again(key="bytes")] == [b"ann", b"bob"]
    assert len(rebuilds(caplog)) == 1


def test_a_topic_made_again_builds_it_again(
    odradek_broker: LocalBroker,
    reopening: _Reopening,
    make_topic: MakeTopic,
    send: Send,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reopening.view.close()
    with Admin(odradek_broker.address) as admin:
        admin.delete_topics([reopening.topic])
    make_topic(name=reopening.topic)
    send(reopening.topic, {b"cid": b"3", b"dan": b"4", b"eve": b"5"})
    assert dict(reopening.again()) == {"cid": 3, "dan": 4, "eve": 5}
    assert rebuilds(caplog) == ["the topic was deleted, and made again"]


def test_a_topic_made_again_under_a_view_builds_it_again(
    odradek_broker: LocalBroker, reopening: _Reopening, make_topic: MakeTopic, send: Send
) -> None:
    with Admin(odradek_broker.address) as admin:
        admin.delete_topics([reopening.topic])
    make_topic(name=reopening.topic)
    send(reopening.topic, {b"cid": b"3", b"dan": b"4", b"eve": b"5"})
    reopening.view.wait_until({0: 3})
    assert dict(reopening.view) == {"cid": 3, "dan": 4, "eve": 5}


def test_a_log_that_begins_behind_the_view_builds_it_again(
    odradek_broker: LocalBroker,
    make_topic: MakeTopic,
    send: Send,
    open_view: OpenView,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = make_topic(**{"cleanup.policy": "delete"})
    send(topic, {b"ann": b"1", b"bob": b"2"})
    reopening = _Reopening(open_view, tmp_path / "view", topic)
    reopening.view.close()
    send(topic, {b"bob": None, b"cid": b"3"})
    with Admin(odradek_broker.address) as admin:
        admin.delete_records({TopicPartition(topic, 0): 3})
    assert dict(reopening.again()) == {"cid": 3}
    assert rebuilds(caplog) == ["the log of partition 0 begins at offset 3, the view ends at 2"]


def test_tombstones_that_may_be_gone_build_it_again(
    make_topic: MakeTopic, send: Send, open_view: OpenView, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(**{"delete.retention.ms": "0"})
    send(topic, {b"ann": b"1"})
    reopening = _Reopening(open_view, tmp_path / "view", topic)
    assert dict(reopening.again()) == {"ann": 1}
    assert "tombstones are kept for 0 s" in rebuilds(caplog)[-1]
