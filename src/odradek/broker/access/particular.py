"""Rules that the table of access rules cannot express: APIs whose answers depend on what the client may see.

`STEPS` run after the steps of the table. The rows marked `apart` in `protocol/access.py` have the rights that they require.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from odradek.broker.access.admission import Admission, Completion
from odradek.broker.requests.authorization import NOT_ASKED
from odradek.broker.requests.dispatch import closing_error
from odradek.broker.requests.refused_answers import element_class, mirrored
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID
from odradek.protocol import Struct
from odradek.protocol.access import AccessRule
from odradek.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType

if TYPE_CHECKING:
    from odradek.protocol.messages.groups import consumer_group_describe, streams_group_describe
    from odradek.protocol.messages.groups.describe_groups import DescribeGroupsResponse
    from odradek.protocol.messages.groups.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
    from odradek.protocol.messages.metadata.describe_cluster import DescribeClusterResponse
    from odradek.protocol.messages.metadata.describe_topic_partitions import DescribeTopicPartitionsResponse
    from odradek.protocol.messages.metadata.metadata import MetadataResponse
    from odradek.protocol.messages.share import share_group_describe
    from odradek.protocol.messages.share.describe_share_group_offsets import DescribeShareGroupOffsetsResponse
    from odradek.protocol.messages.topics.create_topics import CreateTopicsResponse

    _MemberDescriptions = (
        consumer_group_describe.ConsumerGroupDescribeResponse
        | share_group_describe.ShareGroupDescribeResponse
    )
    _GroupDescriptions = _MemberDescriptions | streams_group_describe.StreamsGroupDescribeResponse

E = TypeVar("E", bound=Struct)
OffsetsT = TypeVar("OffsetsT", "OffsetFetchResponse", "OffsetFetchResponseGroup")

Work = Generator[None, None, None]
_TOPIC, _GROUP, _CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
_DESCRIBE: Final = AclOperation.DESCRIBE
_TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_SINCE_GROUPS: Final = 8
_HIDDEN_TOPICS: Final = "the group has topics that the client is not authorized to describe"


def message_of(rule: AccessRule, admission: Admission, element: object) -> str:
    """Returns the refusal as text for people, for answers that have a field for it."""
    required = rule.required
    return f"{admission.context.principal} is not allowed to {required.operation.name} this {required.resource.name}"


def refuse_element(rule: AccessRule, admission: Admission, element: Any) -> None:
    """Notes the answer to an element that a rule refuses."""
    by_id = rule.field == "topics[].topic_id"
    if admission.api.name == "DeleteTopics" and by_id:
        topic = admission.broker.image.topics_by_id[element.topic_id]
        if admission.access.may_quietly(_DESCRIBE, _TOPIC, topic.name):
            element = element.replace(name=topic.name)
    admission.refuse_element(rule.answer, element, rule.code, message_of(rule, admission, element))


def nothing_left(admission: Admission) -> None:
    """Answers a request all of whose elements were refused, without the handler where that is possible."""
    if admission.api.name == "Metadata":
        # The answer names the brokers, too; in version 0 an empty list of topics means all topics.
        admission.finishes.append(_without_topics)
    else:
        admission.answer = admission.api.response()


def refuse_others(admission: Admission, array: str, response_array: str) -> None:
    """Handles AddPartitionsToTxn: if one partition is refused, no partition is added."""
    for element in getattr(admission.request, array):
        admission.refuse_element(response_array, element, ErrorCode.OPERATION_NOT_ATTEMPTED)
    admission.request = admission.request.replace(**{array: []})


def _without_topics(response: MetadataResponse) -> Completion:
    yield
    return response.replace(topics=[])


def refuse_unanswered(admission: Admission) -> None:
    """Raises the error that closes the connection of a Produce request with acks=0, which has no answer, as in Kafka."""
    refusals = [
        data
        for topics in admission.refused.values()
        for topic in topics
        for data in topic.partition_responses
    ]
    code = (
        ErrorCode.of(refusals[0].error_code) if refusals else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    raise closing_error(KafkaError(code, f"{admission.context.principal} may not write what it sends"))


# -- operations that are shown


def _metadata(admission: Admission) -> Work:
    yield
    request = admission.request
    if request.include_topic_authorized_operations:
        admission.finishes.append(partial(_with_topic_operations, admission))
    if request.include_cluster_authorized_operations:
        admission.finishes.append(partial(_with_cluster_operations, admission))


def _with_topic_operations(
    admission: Admission, response: MetadataResponse | DescribeTopicPartitionsResponse
) -> Completion:
    topics = []
    for topic in response.topics:
        yield
        operations = NOT_ASKED
        if topic.error_code == ErrorCode.NONE and topic.name is not None:
            operations = admission.access.operations(_TOPIC, topic.name)
        topics.append(topic.replace(topic_authorized_operations=operations))
    return response.replace(topics=topics)


def _with_cluster_operations(
    admission: Admission, response: MetadataResponse | DescribeClusterResponse
) -> Completion:
    yield
    operations = 0
    if admission.access.may_quietly(_DESCRIBE, _CLUSTER, CLUSTER_NAME):
        operations = admission.access.operations(_CLUSTER, CLUSTER_NAME)
    return response.replace(cluster_authorized_operations=operations)


def _describe_cluster(admission: Admission) -> Work:
    yield
    if admission.request.include_cluster_authorized_operations:
        admission.finishes.append(partial(_with_cluster_operations, admission))


def _describe_groups(admission: Admission) -> Work:
    yield
    if admission.request.include_authorized_operations:
        admission.finishes.append(partial(_with_group_operations, admission))


def _with_group_operations(
    admission: Admission, response: DescribeGroupsResponse | _GroupDescriptions
) -> Completion:
    groups = []
    for group in response.groups:
        yield
        if group.error_code == ErrorCode.NONE:
            group = group.replace(authorized_operations=admission.access.operations(_GROUP, group.group_id))
        groups.append(group)
    return response.replace(groups=groups)


def _describe_members(admission: Admission) -> Work:
    """ConsumerGroupDescribe, ShareGroupDescribe: a group that has topics which may not be described is not shown."""
    admission.finishes.append(partial(_with_visible_groups, admission))
    yield from _describe_groups(admission)


def _with_visible_groups(admission: Admission, response: _MemberDescriptions) -> Completion:
    groups = []
    for group in response.groups:
        for name in _topics_of(group):
            yield
            if not admission.access.may(_DESCRIBE, _TOPIC, name):
                group = group.replace(error_code=_TOPIC_REFUSED, error_message=_HIDDEN_TOPICS, members=[])
                break
        groups.append(group)
    return response.replace(groups=groups)


def _topics_of(
    group: consumer_group_describe.DescribedGroup | share_group_describe.DescribedGroup,
) -> Iterable[str]:
    names: dict[str, None] = {}
    for member in group.members:
        for assignment in (member.assignment, getattr(member, "target_assignment", None)):
            if assignment is not None:
                names.update((topic.topic_name, None) for topic in assignment.topic_partitions)
    return names


def _describe_streams_groups(admission: Admission) -> Work:
    """StreamsGroupDescribe: a group whose topology has topics which may not be described is not shown."""
    admission.finishes.append(partial(_with_visible_topologies, admission))
    yield from _describe_groups(admission)


def _with_visible_topologies(
    admission: Admission, response: streams_group_describe.StreamsGroupDescribeResponse
) -> Completion:
    groups = []
    for group in response.groups:
        for name in _topics_of_topology(group):
            yield
            if not admission.access.may(_DESCRIBE, _TOPIC, name):
                group = group.replace(
                    error_code=_TOPIC_REFUSED, error_message=_HIDDEN_TOPICS, members=[], topology=None
                )
                break
        groups.append(group)
    return response.replace(groups=groups)


def _topics_of_topology(group: streams_group_describe.DescribedGroup) -> Iterable[str]:
    names: dict[str, None] = {}
    if group.topology is not None:
        for part in group.topology.subtopologies or ():
            names.update(dict.fromkeys(part.source_topics))
            names.update(dict.fromkeys(part.repartition_sink_topics))
            names.update((topic.name, None) for topic in part.repartition_source_topics)
            names.update((topic.name, None) for topic in part.state_changelog_topics)
    return names


def _create_topics(admission: Admission) -> Work:
    yield
    admission.finishes.append(partial(_with_visible_settings, admission))


def _with_visible_settings(admission: Admission, response: CreateTopicsResponse) -> Completion:
    topics = []
    for topic in response.topics:
        yield
        if topic.error_code == ErrorCode.NONE and not admission.access.may_quietly(
            AclOperation.DESCRIBE_CONFIGS, _TOPIC, topic.name
        ):
            topic = topic.replace(
                topic_config_error_code=_TOPIC_REFUSED, num_partitions=-1, replication_factor=-1, configs=[]
            )
        topics.append(topic)
    return response.replace(topics=topics)


# -- fetches


def _fetch(admission: Admission) -> Work:
    """Refuses a follower's fetch without CLUSTER_ACTION. A consumer's rights are checked at each read."""
    yield
    request = admission.request
    if (request.replica_id < 0 and request.replica_state.replica_id < 0) or admission.access.may(
        AclOperation.CLUSTER_ACTION, _CLUSTER, CLUSTER_NAME
    ):
        return
    topic_class = element_class(admission.api.response, "responses")
    responses = [
        mirrored(admission.api, admission.version, topic_class, topic, _TOPIC_REFUSED)
        for topic in request.topics
    ]
    admission.answer = admission.api.response.of_values({"responses": responses})


# -- offsets of groups


def _offset_fetch(admission: Admission) -> Work:
    if admission.version < _SINCE_GROUPS:
        yield from _old_offset_fetch(admission)
        return
    visible_groups = []
    refused_topics: dict[str, list[Struct]] = {}
    for group in admission.request.groups:
        yield
        if not admission.access.may(_DESCRIBE, _GROUP, group.group_id):
            refused = group.replace(topics=[])
            admission.refuse_element("groups", refused, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            continue
        if group.topics is not None:
            visible, hidden = yield from _parted(admission, group.topics)
            group = group.replace(topics=visible)
            refused_topics[group.group_id] = hidden
        visible_groups.append(group)
    admission.request = admission.request.replace(groups=visible_groups)
    admission.finishes.append(partial(_with_offsets, admission, refused_topics))


def _old_offset_fetch(admission: Admission) -> Work:
    request = admission.request
    yield
    if not admission.access.may(_DESCRIBE, _GROUP, request.group_id):
        admission.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
    if request.topics is None:
        admission.finishes.append(partial(_with_visible_topics, admission))
        return
    visible, hidden = yield from _parted(admission, request.topics)
    admission.request = request.replace(topics=visible)
    for topic in hidden:
        admission.refuse_element("topics", topic, _TOPIC_REFUSED)


def _parted(admission: Admission, topics: Iterable[E]) -> Generator[None, None, tuple[list[E], list[E]]]:
    visible: list[E] = []
    hidden: list[E] = []
    for topic in topics:
        yield
        name = _name_of(admission, topic)
        allowed = name is None or admission.access.may(_DESCRIBE, _TOPIC, name)
        (visible if allowed else hidden).append(topic)
    return visible, hidden


def _name_of(admission: Admission, topic: Struct) -> str | None:
    """Returns the topic's name; None for an id that no topic has."""
    topic_id = getattr(topic, "topic_id", ZERO_UUID)
    if topic_id == ZERO_UUID:
        name: str = getattr(topic, "name", "") or getattr(topic, "topic_name", "")
        return name
    image = admission.broker.image.topics_by_id.get(topic_id)
    return None if image is None else image.name


def _with_visible_topics(admission: Admission, response: OffsetsT) -> Generator[None, None, OffsetsT]:
    topics = []
    for topic in response.topics:
        yield
        name = _name_of(admission, topic)
        if name is not None and admission.access.may_quietly(_DESCRIBE, _TOPIC, name):
            topics.append(topic)
    return response.replace(topics=topics)


def _with_offsets(
    admission: Admission, refused_topics: dict[str, list[Struct]], response: OffsetFetchResponse
) -> Completion:
    groups = []
    for group in response.groups:
        yield
        if group.error_code == ErrorCode.NONE and group.group_id not in refused_topics:
            group = yield from _with_visible_topics(admission, group)
        elif group.error_code == ErrorCode.NONE:
            hidden = yield from _refused_topics(admission, group, refused_topics[group.group_id])
            group = group.replace(topics=[*group.topics, *hidden])
        groups.append(group)
    return response.replace(groups=groups)


def _refused_topics(
    admission: Admission, group: Struct, hidden: Collection[Struct]
) -> Generator[None, None, list[Struct]]:
    cls = element_class(type(group), "topics")
    answers: list[Struct] = []
    for topic in hidden:
        yield
        answers.append(mirrored(admission.api, admission.version, cls, topic, _TOPIC_REFUSED))
    return answers


def _share_group_offsets(admission: Admission) -> Work:
    refused_topics: dict[str, list[Struct]] = {}
    groups = []
    for group in admission.request.groups:
        yield
        if group.topics is not None:
            visible, hidden = yield from _parted(admission, group.topics)
            group = group.replace(topics=visible)
            refused_topics[group.group_id] = hidden
        groups.append(group)
    admission.request = admission.request.replace(groups=groups)
    admission.finishes.append(partial(_with_share_offsets, admission, refused_topics))


def _with_share_offsets(
    admission: Admission, refused_topics: dict[str, list[Struct]], response: DescribeShareGroupOffsetsResponse
) -> Completion:
    groups = []
    for group in response.groups:
        yield
        if group.group_id in refused_topics:
            hidden = yield from _refused_topics(admission, group, refused_topics[group.group_id])
            group = group.replace(topics=[*group.topics, *hidden])
        else:
            topics = [
                topic
                for topic in group.topics
                if admission.access.may_quietly(_DESCRIBE, _TOPIC, topic.topic_name)
            ]
            group = group.replace(topics=topics)
        groups.append(group)
    return response.replace(groups=groups)


# -- topics, page by page


def _describe_topic_partitions(admission: Admission) -> Work:
    """Passes only the names that may be described to the handler, so that no page, and no cursor, has another one."""
    request = admission.request
    access = admission.access
    if request.topics:
        visible = []
        for topic in request.topics:
            yield
            if access.may(_DESCRIBE, _TOPIC, topic.name):
                visible.append(topic)
            else:
                admission.refuse_element("topics", topic, _TOPIC_REFUSED)
    else:
        cls = element_class(type(request), "topics")
        visible = []
        for name in sorted(admission.broker.image.topics):
            yield
            if access.may_quietly(_DESCRIBE, _TOPIC, name):
                visible.append(cls(name=name))
    cursor = request.cursor
    if cursor is not None and visible and not any(topic.name == cursor.topic_name for topic in visible):
        visible = [topic for topic in visible if topic.name > cursor.topic_name]
        cursor = None
    if not visible:
        admission.answer = admission.api.response()
        return
    admission.request = request.replace(topics=visible, cursor=cursor)
    admission.finishes.append(partial(_with_topic_operations, admission))


STEPS: Final[dict[str, Callable[[Admission], Work]]] = {
    "ConsumerGroupDescribe": _describe_members,
    "CreateTopics": _create_topics,
    "DescribeCluster": _describe_cluster,
    "DescribeGroups": _describe_groups,
    "DescribeShareGroupOffsets": _share_group_offsets,
    "DescribeTopicPartitions": _describe_topic_partitions,
    "Fetch": _fetch,
    "Metadata": _metadata,
    "OffsetFetch": _offset_fetch,
    "ShareGroupDescribe": _describe_members,
    "StreamsGroupDescribe": _describe_streams_groups,
}
