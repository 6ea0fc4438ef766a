"""CreateTopics (19). Versions 2-7: -1 partitions or replicas mean the broker's default from v4, the topic's settings come back
from v5 (at most `max.request.elements` of them in one answer), its id from v7. A topic that was created can be used at once:
its logs exist before the answer is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.requests.throttling import Mutations
from odradek.cluster.image import TopicImage
from odradek.cluster.planning import PARTITIONS_PER_CHANGE_MAX, TopicSpec, together
from odradek.config.describe import DescribedSetting, describe_topic
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.topics.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.runtime.turns import slices

_SINCE_QUOTA_ERROR = 6
_NAMES_A_STEP: Final = 1000


@dataclass(slots=True)
class _Descriptions:
    """The topics' settings in the answer. Most topics of a request set the same: they are described once."""

    broker: BrokerContext
    left: int
    """The number of settings that the answer may still name. The answer is much longer than the request."""
    known: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = field(default_factory=dict)

    def of(self, configs: Mapping[str, str]) -> list[CreatableTopicConfigs] | None:
        """Returns the described settings; None when the answer has no room for them."""
        key = tuple(configs.items())
        described = self.known.get(key)
        if described is None:
            if self.left <= 0:
                return None
            settings = describe_topic(configs, self.broker.config, older_names=True)
            described = self.known[key] = [_config(setting) for setting in settings]
        self.left -= len(described)
        return described if self.left >= 0 else None


async def handle(
    broker: BrokerContext, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    turn = broker.turns.begin()
    names: Counter[str] = Counter()
    for part in slices(request.topics, _NAMES_A_STEP):
        await turn.step()
        names.update(topic.name for topic in part)
    mutations = Mutations(broker, context, strict_since=_SINCE_QUOTA_ERROR)
    planned: dict[str, TopicSpec] = {}
    outcomes: dict[str, TopicImage | KafkaError] = {}
    partition_count = 0
    for topic in request.topics:
        await turn.step()
        try:
            if names[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named more than once")
            new = _new_topic(topic)
            if topic.name not in broker.image.topics and not request.validate_only:
                mutations.record(_partition_count(broker, new))
            planned[topic.name] = new
            partition_count += _partition_count(broker, new)
        except KafkaError as error:
            outcomes[topic.name] = error.as_outcome()
    if partition_count > PARTITIONS_PER_CHANGE_MAX:
        outcomes.update(dict.fromkeys(planned, _too_many()))
        planned.clear()
    for some in together(list(planned.values()), lambda new: _partition_count(broker, new)):
        await turn.step()
        created = await broker.controller.create_topics(some, validate_only=request.validate_only)
        outcomes.update((new.name, outcome) for new, outcome in zip(some, created, strict=True))
    descriptions = _Descriptions(broker, left=broker.config.network.max_request_elements)
    topics = await turn.map(lambda name: _result(name, outcomes[name], descriptions), names)
    return CreateTopicsResponse(throttle_time_ms=mutations.throttle_time_ms, topics=topics)


def _too_many() -> KafkaError:
    """Returns the error for too many partitions in all topics of a request; work in slices has the same limit, as in Kafka."""
    return KafkaError(
        ErrorCode.POLICY_VIOLATION,
        f"one request may add {PARTITIONS_PER_CHANGE_MAX} partitions, in all its topics together: use several",
    )


def _partition_count(broker: BrokerContext, new: TopicSpec) -> int:
    return len(new.assignment) or (
        new.partition_count if new.partition_count > 0 else broker.config.topics.num_partitions
    )


def _new_topic(topic: CreatableTopic) -> TopicSpec:
    assignment: dict[int, list[int]] = {}
    for entry in topic.assignments:
        if entry.partition_index in assignment:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {entry.partition_index} is assigned more than once",
            )
        assignment[entry.partition_index] = entry.broker_ids
    return TopicSpec(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=assignment,
        configs=_configs(topic),
    )


def _configs(topic: CreatableTopic) -> Mapping[str, str]:
    configs: dict[str, str] = {}
    for entry in topic.configs:
        if entry.name in configs:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"setting {entry.name} of topic {topic.name!r} is given twice"
            )
        if entry.value is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"setting {entry.name} of topic {topic.name!r} has no value: leave it out instead",
            )
        configs[entry.name] = entry.value
    return configs


def _result(name: str, outcome: TopicImage | KafkaError, descriptions: _Descriptions) -> CreatableTopicResult:
    if isinstance(outcome, KafkaError):
        return CreatableTopicResult(
            name=name, error_code=outcome.code, error_message=outcome.message, configs=[]
        )
    configs = descriptions.of(outcome.configs)
    return CreatableTopicResult(
        name=name,
        topic_id=outcome.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        topic_config_error_code=ErrorCode.INVALID_REQUEST if configs is None else ErrorCode.NONE,
        num_partitions=len(outcome.partitions),
        replication_factor=len(outcome.partitions[0].replicas),
        configs=configs,
    )


def _config(entry: DescribedSetting) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.key,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
    )


SERVED = ApiHandler(19, handle)
