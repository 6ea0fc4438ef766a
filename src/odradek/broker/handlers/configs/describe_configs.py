"""DescribeConfigs (32). Versions 1-4: settings, where each value comes from, what would replace it, and what it means.

Of topics; of this broker, or by the name "" the dynamic settings of all brokers; of the broker's loggers; of any group, whether
it exists or not; of subscriptions to clients' metrics. What is named twice is answered once, for the answer is a thousand times
as long as the question.
"""

from __future__ import annotations

from functools import partial

from odradek.broker.handlers.config_resources import (
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    broker_resource,
    logger_resource,
    named_resource,
    topic_resource,
    unsupported,
)
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.documents import BROKER
from odradek.config.client_metrics import describe_client_metrics
from odradek.config.definition import SettingType
from odradek.config.describe import (
    DescribedSetting,
    ValueSource,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from odradek.config.group import describe_group
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.configs.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from odradek.telemetry.levels import loggers


async def handle(
    broker: BrokerContext, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    turn = broker.turns.begin()
    unique = {}
    for resource in request.resources:
        await turn.step()
        keys = tuple(resource.configuration_keys or ())
        unique[resource.resource_type, resource.resource_name, keys] = resource
    results = await turn.map(partial(_describe, broker, request), unique.values())
    return DescribeConfigsResponse(results=results)


def _describe(
    broker: BrokerContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        settings = _settings(broker, resource)
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
        configs=[_entry(request, setting) for setting in settings if not wanted or setting.key in wanted],
    )


def _settings(broker: BrokerContext, resource: DescribeConfigsResource) -> list[DescribedSetting]:
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC:
        return describe_topic(topic_resource(broker, name).configs, broker.config)
    if kind == BROKER:
        broker_resource(broker, name)
        return describe_broker(broker.config) if name else describe_broker_defaults(broker.config)
    if kind == BROKER_LOGGER:
        logger_resource(broker, name)
        return [_logger(logger_name, level) for logger_name, level in loggers().items()]
    if kind not in (GROUP, CLIENT_METRICS):
        raise unsupported(kind)
    named_resource(kind, name)
    overrides = broker.image.resource_configs.get((kind, name), {})
    return describe_group(overrides, broker.config) if kind == GROUP else describe_client_metrics(overrides)


def _logger(name: str, level: str) -> DescribedSetting:
    return DescribedSetting(
        key=name,
        value=level,
        source=ValueSource.BROKER_LOGGER,
        type=SettingType.STRING,
        documentation="What is logged: this level and those above it.",
        read_only=False,
        sensitive=False,
        synonyms=(),
    )


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


SERVED = ApiHandler(32, handle, is_quick=True)
