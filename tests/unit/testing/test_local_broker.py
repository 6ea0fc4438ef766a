"""The broker for tests: it is there when `start` returns, gone when `stop` does, and leaves nothing behind."""

import gc
import socket
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.client import Admin, Consumer, Producer
from odradek.model.errors import ConfigError, OdradekError
from odradek.model.ids import TopicPartition
from odradek.testing import LocalBroker


def threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if "odradek" in thread.name)


def accepts(address: str) -> bool:
    """Whether someone is there who hangs up on a frame of no bytes."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(bytes(4))
            return connection.recv(1) == b""
    except ConnectionRefusedError:
        return False


def test_it_serves_while_it_is_entered_and_leaves_no_thread_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = threads()
    with LocalBroker() as broker:
        assert accepts(broker.address)
        assert list(tmp_path.iterdir())
    assert not accepts(broker.address)
    assert not list(tmp_path.iterdir())
    assert threads() == before
    broker.stop()


def test_it_may_be_used_again_and_keeps_the_data_it_was_given(tmp_path: Path) -> None:
    broker = LocalBroker(data=tmp_path)
    with broker, Producer(broker.address) as producer:
        producer.send("t", b"kept").result(20)
    first = broker.address
    with broker:
        assert accepts(broker.address)
        with Admin(broker.address) as admin:
            assert "t" in admin.list_topics()
        with Consumer(broker.address) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek_to_beginning()
            assert [record.value for record in consumer.poll(20)] == [b"kept"]
    assert first
    assert not accepts(broker.address)


def test_a_setting_that_cannot_be_used_is_raised_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConfigError, match=r"num\.partitions"):
            LocalBroker({"num.partitions": "none"}).start()
        gc.collect()
    assert not list(tmp_path.iterdir())


def test_what_keeps_it_from_starting_is_raised_and_leaves_nothing(tmp_path: Path) -> None:
    before = threads()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        broker = LocalBroker({"listeners": address}, data=tmp_path)
        with pytest.raises(OdradekError, match="another process uses this port"):
            broker.start()
    assert threads() == before
    with LocalBroker(data=tmp_path) as second:  # the lock was released
        assert accepts(second.address)


def test_two_run_side_by_side() -> None:
    with LocalBroker() as local_broker, LocalBroker() as two:
        assert local_broker.address != two.address
        assert accepts(local_broker.address)
        assert accepts(two.address)


def test_each_test_gets_a_topic_of_its_own(
    odradek_broker: LocalBroker, odradek_topic: str, odradek_new_topic: Callable[..., str]
) -> None:
    other = odradek_new_topic(partitions=3, cleanup_policy="compact")
    with Admin(odradek_broker.address) as admin:
        topics = admin.describe_topics([odradek_topic, other])
    assert [len(topics[name].partitions) for name in (odradek_topic, other)] == [1, 3]


@pytest.mark.parametrize(
    "weaker",
    [
        {"listeners": "PLAINTEXT://127.0.0.1:0"},
        {"listeners": "SSL://127.0.0.1:0"},
        {"authorizer.class.name": ""},
        {"allow.everyone.if.no.acl.found": "true"},
    ],
)
def test_settings_do_not_open_a_secure_broker(weaker: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="what is stricter counts"):
        LocalBroker(weaker, data=tmp_path, secure=True).start()
