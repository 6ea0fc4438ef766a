"""DescribeConfigs (32). Versions 1-4: settings of topics and brokers, where each value comes from, and what it means.

Other kinds of resource (broker loggers, client metrics, groups) are not served yet: INVALID_REQUEST with a sentence.
"""

from __future__ import annotations

from odradek.broker.config_resources import BROKER, TOPIC, broker_resource, topic_resource, unsupported
from odradek.broker.context import Circumstances, Parts, Served
from odradek.config.describe import DescribedSetting, describe_broker, describe_topic
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(
    parts: Parts, circumstances: Circumstances, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(parts, request, resource) for resource in request.resources]
    )


def _describe(
    parts: Parts, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        settings = _settings(parts, resource)
    except KafkaError as error:
        return DescribeConfigsResult(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    wanted = set(resource.configuration_keys or ())
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_entry(request, one) for one in settings if not wanted or one.key in wanted],
    )


def _settings(parts: Parts, resource: DescribeConfigsResource) -> list[DescribedSetting]:
    if resource.resource_type == TOPIC:
        return describe_topic(topic_resource(parts, resource.resource_name).configs, parts.config)
    if resource.resource_type == BROKER:
        broker_resource(parts, resource.resource_name)
        return describe_broker(parts.config)
    raise unsupported(resource.resource_type)


def _entry(request: DescribeConfigsRequest, setting: DescribedSetting) -> DescribeConfigsResourceResult:
    synonyms = []
    if request.include_synonyms:
        synonyms = [
            DescribeConfigsSynonym(name=synonym.key, value=synonym.value, source=synonym.source)
            for synonym in setting.synonyms
        ]
    return DescribeConfigsResourceResult(
        name=setting.key,
        value=None if setting.sensitive else setting.value,
        read_only=setting.read_only,
        config_source=setting.source,
        is_sensitive=setting.sensitive,
        synonyms=synonyms,
        config_type=setting.type,
        documentation=setting.documentation if request.include_documentation else None,
    )


SERVED = Served(32, handle)
