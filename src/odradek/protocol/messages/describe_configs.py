from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, boolean, int16, int32, int8, string


class DescribeConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configuration_keys: list[str] | None = array(string, "0+", nullable="0+")


class DescribeConfigsRequest(Message, api=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(Struct):
    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


class DescribeConfigsResourceResult(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")
    read_only: bool = boolean("0+")
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_default: bool = boolean("0")
    is_sensitive: bool = boolean("0+")
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable="0+", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult, "0+")


class DescribeConfigsResponse(Message, api=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int = int32("0+")
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, "0+")
