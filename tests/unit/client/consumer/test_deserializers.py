"""What users' deserializers are called for, and what happens when they raise."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.client.scripted_log import A, Log, Within, consumer_of


@pytest.fixture
def log(broker: Any) -> Log:
    return Log(broker)


@dataclass(frozen=True)
class Frozen(Exception):
    """An exception that takes no note."""

    code: int


async def test_deserializers_are_not_called_for_null(broker: Any, log: Log, within: Within) -> None:
    log.end, log.tombstones = 8, {2, 3, 7}
    async with consumer_of(broker, key_deserializer=int, value_deserializer=json.loads) as consumer:
        await consumer.assign([A])
        values: list[Any] = []
        while len(values) < 8:
            values += [(record.key, record.value) for record in await within(consumer.poll(10))]
    assert values == [(None, None if offset in log.tombstones else offset) for offset in range(8)]


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt, and for what timers of other packages raise."""


@pytest.mark.parametrize("error", [ValueError("bad"), Frozen(1), Interrupt()])
@pytest.mark.parametrize("at", range(7))
async def test_what_a_deserializer_raises_anywhere_loses_and_doubles_nothing(
    broker: Any, log: Log, within: Within, error: BaseException, at: int
) -> None:
    log.end = 9
    raising = {at}

    def once(value: bytes) -> int:
        if int(value) in raising:
            raising.clear()
            raise error
        return int(value)

    async with consumer_of(broker, value_deserializer=once) as consumer:
        await consumer.assign([A])
        values: list[int] = []
        raised = 0
        while len(values) < 9:
            try:
                values += [record.value for record in await within(consumer.poll(10))]
            except type(error):
                raised += 1
    assert values == list(range(9))
    assert raised <= 1
