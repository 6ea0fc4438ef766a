"""Every public method of the admin client refuses arguments of a wrong type, before it asks anyone.

The values come from the annotations, so a new method or parameter is covered when it appears.
"""

from __future__ import annotations

import pytest
from tests.unit.client.admin import wrong_values

from odradek import NewTopic, TopicPartition
from odradek.client import NewPassword, TransactionIdentity, WrongArgumentError
from odradek.client.admin.aio import AsyncAdmin

ABSENT_BROKER = "127.0.0.1:1"


@pytest.mark.parametrize("method", wrong_values.METHODS)
async def test_a_wrong_type_is_one_line_that_names_the_parameter(method: str) -> None:
    async with AsyncAdmin(ABSENT_BROKER) as admin:  # a request would fail: no broker listens there
        for parameter, hint in wrong_values.hints_of(method).items():
            values = list(wrong_values.wrong_types(hint))
            assert values
            for value in values:
                with pytest.raises(
                    WrongArgumentError, match=rf"\A{method}: {parameter}[^\n]* must be [^\n]*\Z"
                ):
                    await getattr(admin, method)(**wrong_values.arguments(method, parameter, value))


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (
            lambda admin: admin.list_offsets({TopicPartition("t", 0): -1}, isolation="text"),
            "list_offsets: isolation must be int, not str",
        ),
        (
            lambda admin: admin.list_offsets({TopicPartition("t", 0): -1}, isolation=7),
            "list_offsets: isolation must be 0 (all records) or 1 (committed ones), not 7",
        ),
        (
            lambda admin: admin.create_topics([NewTopic("t", "3")]),
            "create_topics: topics[0].partitions must be int, not str",
        ),
        (
            lambda admin: admin.delete_topics("flights"),
            "delete_topics: topics must be an iterable of str, not str",
        ),
        (
            lambda admin: admin.alter_users({"ann": NewPassword(password=b"secret")}),
            "alter_users: changes['ann'].password must be str, not bytes",
        ),
        (
            lambda admin: admin.list_config_resources([3]),
            "list_config_resources: kinds[0] must be ResourceType: TOPIC (2), BROKER (4), BROKER_LOGGER (8),"
            " CLIENT_METRICS (16), GROUP (32); not 3",
        ),
        (
            lambda admin: admin.elect_leaders([["t", 0, 0]]),
            "elect_leaders: partitions[0] must be TopicPartition, not list",
        ),
        (
            lambda admin: admin.elect_leaders([["t", "0"]]),
            "elect_leaders: partitions[0].partition must be int, not str",
        ),
        (
            lambda admin: admin.list_topics(timeout_s=10**400),
            "list_topics: timeout_s must be a number up to 1.8e+308, not a larger one",
        ),
        (
            lambda admin: admin.list_topics(timeout_s=float("nan")),
            "timeout_s must be 0 or more seconds, not nan",
        ),
        (
            lambda admin: admin.delete_records({("t", 0, 0): 5}),
            "delete_records: before, key ('t', 0, 0), must be TopicPartition, not tuple",
        ),
        (
            lambda admin: admin.end_transactions(
                [
                    TransactionIdentity(transactional_id="t", producer_id=1, producer_epoch=epoch)
                    for epoch in (1, 2)
                ],
                committed=True,
            ),
            "end_transactions: identities has two of transactional id 't', and an id has at most one prepared transaction",
        ),
        (
            lambda admin: admin.alter_group_offsets("g", {TopicPartition("t", 0): -1}),
            "t-0: an offset to commit is 0 or more, not -1",
        ),
    ],
)
async def test_the_line_says_which_part_and_what_it_takes(call: object, line: str) -> None:
    async with AsyncAdmin(ABSENT_BROKER) as admin:
        with pytest.raises(WrongArgumentError) as caught:
            await call(admin)  # type: ignore[operator]
    assert str(caught.value) == line
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)
