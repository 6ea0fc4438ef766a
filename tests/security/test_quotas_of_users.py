"""Quotas are for those who logged in, and for their client ids."""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.kit.requests import batch_of, produce_request
from tests.scenarios.administration.test_quotas import LITTLE, set_quota
from tests.security.conftest import SecureScene, log_in

from odradek.security.sasl.scram import ScramClient

SCRAM: Final = "SCRAM-SHA-512"
USERS: Final = ";".join(f"{SCRAM}=[name={name},password=secret]" for name in ("alice", "bob"))


@pytest.mark.check(46)
@pytest.mark.parametrize(
    ("entity", "slowed"),
    [
        ({"user": "alice"}, {"alice"}),
        ({"user": "alice", "client-id": "test"}, {"alice"}),
        ({"user": "alice", "client-id": "another"}, set()),
        ({"user": "ANONYMOUS"}, set()),
        ({"user": None, "client-id": "test"}, {"alice", "bob"}),
    ],
)
async def test_a_quota_is_for_the_user_that_logged_in(
    scene: SecureScene, entity: dict[str, str | None], slowed: set[str]
) -> None:
    await scene.secure("SASL_PLAINTEXT", {"odradek.scram.first.users": USERS})
    wires: dict[str, Any] = {}
    for name in ("alice", "bob"):
        wires[name] = await scene.wire()
        assert (await log_in(wires[name], ScramClient(SCRAM, name, "secret", "nonce"), SCRAM)).error_code == 0
    await wires["bob"].create("t")
    await set_quota(wires["bob"], entity, producer_byte_rate=LITTLE)
    throttled = set()
    for name, wire in wires.items():
        produced = await wire.ask(produce_request("t", batch_of([b"v" * 10_000])), 9)
        assert produced.responses[0].partition_responses[0].error_code == 0
        if produced.throttle_time_ms:
            throttled.add(name)
    assert throttled == slowed
