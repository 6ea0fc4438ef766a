"""DescribeLogDirs (key 35): log directories of this broker, and their content (KIP-113).

Versions
     1  quota violations are answered first and throttled afterwards (KIP-219)
     2  flexible
     3  response: an error for the whole request (KIP-784)
     4  response: size of the volume and what is left of it (KIP-827)
     5  response: whether the directory is cordoned, taking no new partitions (KIP-1066)
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string


class DescribableLogDirTopic(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class DescribeLogDirsRequest(Message, api=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, "0+", nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32("0+")
    partition_size: int = int64("0+")
    offset_lag: int = int64("0+")
    is_future_key: bool = boolean("0+")


class DescribeLogDirsTopic(Struct):
    name: str = string("0+")
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, "0+")


class DescribeLogDirsResult(Struct):
    error_code: int = int16("0+")
    log_dir: str = string("0+")
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, "0+")
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", ignorable=True)
    condition: str = string("2+", default="", tag=10_000, ignorable=True)
    """A field of Odradek's own, which other clients skip: `full` or `slow` while the directory is."""


class DescribeLogDirsResponse(Message, api=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, "0+")
