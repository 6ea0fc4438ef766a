"""Clients are lent to one borrower at a time, used again, and thrown away after an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from odradek.model.errors import ConfigError
from odradek.spark.clients.connections import (
    IDLE_CLIENTS_MAX,
    Pool,
    check_read_settings,
    check_write_settings,
)

SERVERS = {"bootstrap.servers": "127.0.0.1:9092"}


class Line:
    """Something that can be closed."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self.config = config
        self.closed = False

    def close(self) -> None:
        self.closed = True


def pool() -> Pool[Line]:
    return Pool(Line, Line.close)


def test_a_client_given_back_is_lent_again_for_the_same_settings_only() -> None:
    lines = pool()
    with lines.lend({"a": "1", "b": "2"}) as first:
        pass
    with lines.lend({"a": "1"}) as other:
        assert other is not first
    with lines.lend({"b": "2", "a": "1"}) as again:
        assert again is first


def test_idle_clients_are_closed_when_the_process_ends() -> None:
    lines = pool()
    with lines.lend({"a": "1"}) as first, lines.lend({"a": "2"}) as second:
        pass
    lines.close()
    assert first.closed
    assert second.closed


def test_two_borrowers_never_share_a_client() -> None:
    lines = pool()
    with lines.lend(SERVERS) as first, lines.lend(SERVERS) as second:
        assert first is not second


def test_a_client_that_an_error_came_out_of_is_closed() -> None:
    lines = pool()
    with pytest.raises(OSError, match="gone"), lines.lend(SERVERS) as broken:
        raise OSError("gone")
    assert broken.closed
    with lines.lend(SERVERS) as fresh:
        assert fresh is not broken


def test_a_reader_that_is_given_up_early_gives_its_client_back() -> None:
    lines = pool()

    def read() -> Iterator[Line]:
        with lines.lend(SERVERS) as line:
            while True:
                yield line

    reader = read()
    line = next(reader)
    reader.close()  # type: ignore[attr-defined]
    assert not line.closed
    with lines.lend(SERVERS) as again:
        assert again is line


def test_the_client_idle_for_longest_makes_room() -> None:
    lines = pool()
    seen = []
    for number in range(IDLE_CLIENTS_MAX + 1):
        with lines.lend({"n": str(number)}) as line:
            seen.append(line)
    assert [line.closed for line in seen] == [True] + [False] * IDLE_CLIENTS_MAX


def test_the_client_that_was_used_last_is_lent_first() -> None:
    lines = pool()
    with lines.lend(SERVERS) as early:
        with lines.lend(SERVERS) as late:
            pass
        with lines.lend(SERVERS) as again:
            assert again is late
    for _ in range(3):
        with lines.lend(SERVERS) as last:
            assert last is early


def test_client_settings_are_checked_before_anything_runs() -> None:
    check_read_settings({**SERVERS, "fetch.min.bytes": "1"})
    check_write_settings({**SERVERS, "compression.type": "zstd"})
    with pytest.raises(ConfigError, match=r"linger\.ms"):
        check_read_settings({**SERVERS, "linger.ms": "5"})
    with pytest.raises(ConfigError, match=r"fetch\.min\.bytes"):
        check_write_settings({**SERVERS, "fetch.min.bytes": "1"})
    with pytest.raises(ConfigError, match="acks=0 would lose records"):
        check_write_settings({**SERVERS, "acks": "0"})
