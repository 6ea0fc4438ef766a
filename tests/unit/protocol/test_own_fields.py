"""Fields of our own are tagged: our clients read them, and those that do not know them skip them."""

import pytest

from odradek.protocol import decode, encode
from odradek.protocol.messages.topics.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult


@pytest.mark.parametrize("version", range(1, 6))
@pytest.mark.parametrize("condition", ["", "full", "slow"])
def test_the_condition_of_a_directory_is_sent_where_tags_can_be(version: int, condition: str) -> None:
    log_dir = DescribeLogDirsResult(error_code=0, log_dir="/data", topics=[], condition=condition)
    encoded = encode(DescribeLogDirsResponse(throttle_time_ms=0, results=[log_dir]), version)
    [decoded] = decode(DescribeLogDirsResponse, version, encoded)[0].results
    assert decoded.condition == (condition if version >= 2 else "")
    usual = DescribeLogDirsResult(error_code=0, log_dir="/data", topics=[])
    if not condition or version < 2:
        assert encoded == encode(DescribeLogDirsResponse(throttle_time_ms=0, results=[usual]), version)
