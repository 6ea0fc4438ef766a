"""Topics that a program needs with certain partitions and settings: they are created or changed.

A broker that creates topics by itself makes such a topic with its own defaults when another client asks for it first: a log
of commands is deleted after a week then. So a setting that the topic has from the broker's defaults is set on the topic, and a
topic with too few partitions gets more. What a person has set on the topic stays, with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.client.admin.admin import Admin
from odradek.client.admin.aio import AsyncAdmin
from odradek.client.admin.types import ConfigEntry, ConfigResource, ConfigSource, NewTopic, TopicDescription
from odradek.model.errors import ErrorCode, KafkaError
from odradek.telemetry import events

_log = events.get("client")
_NOT_ALLOWED: Final = frozenset(
    {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.POLICY_VIOLATION}
)


class Lack(NamedTuple):
    """Missing parts of a topic. `partitions`: the total that it must have; None when it has enough."""

    partitions: int | None
    settings: dict[str, str]


def ensure_topic(admin: Admin, topic: NewTopic) -> None:
    """Creates a topic, or gives the one that is there what it lacks. Idempotent.

    KafkaError when the topic cannot be created or cannot get partitions. Settings that may not be read or set are in the log.
    """
    present = _description(admin, topic.name)
    if present is None:
        try:
            admin.create_topics([topic])
            return
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        present = admin.describe_topics([topic.name])[topic.name]
    resource = ConfigResource.topic(topic.name)
    try:
        settings = admin.describe_configs([resource])[resource] if topic.configs else {}
    except KafkaError as error:
        settings = _unread(topic, error)
    lack = lack_of(topic, present, settings)
    if lack.partitions is not None:
        try:
            admin.create_partitions({topic.name: lack.partitions})
        except KafkaError as error:
            _unless_grown(topic, error)
    if lack.settings:
        try:
            admin.alter_configs({resource: lack.settings})
        except KafkaError as error:
            _unset(topic, lack, error)


async def ensure_topic_async(admin: AsyncAdmin, topic: NewTopic) -> None:
    """Does what `ensure_topic` does, on the event loop."""
    present = await _description_async(admin, topic.name)
    if present is None:
        try:
            await admin.create_topics([topic])
            return
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        present = (await admin.describe_topics([topic.name]))[topic.name]
    resource = ConfigResource.topic(topic.name)
    try:
        settings = (await admin.describe_configs([resource]))[resource] if topic.configs else {}
    except KafkaError as error:
        settings = _unread(topic, error)
    lack = lack_of(topic, present, settings)
    if lack.partitions is not None:
        try:
            await admin.create_partitions({topic.name: lack.partitions})
        except KafkaError as error:
            _unless_grown(topic, error)
    if lack.settings:
        try:
            await admin.alter_configs({resource: lack.settings})
        except KafkaError as error:
            _unset(topic, lack, error)


def lack_of(wanted: NewTopic, present: TopicDescription, settings: Mapping[str, ConfigEntry]) -> Lack:
    """Compares a topic with what is wanted of it. Warns of settings that a person has set otherwise on the topic."""
    lacking = {}
    for name, value in wanted.configs.items():
        entry = settings.get(name)
        if entry is None or entry.value == value:
            continue
        if entry.source is ConfigSource.TOPIC:
            _log.warning(
                "topic_is_set_otherwise",
                topic=wanted.name,
                setting=name,
                value=entry.value or "",
                wanted=value,
            )
        else:
            lacking[name] = value
    grows = len(present.partitions) < wanted.partitions
    return Lack(wanted.partitions if grows else None, lacking)


def _description(admin: Admin, topic: str) -> TopicDescription | None:
    """Describes a topic; None when there is no such topic."""
    try:
        return admin.describe_topics([topic])[topic]
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None


async def _description_async(admin: AsyncAdmin, topic: str) -> TopicDescription | None:
    try:
        return (await admin.describe_topics([topic]))[topic]
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None


def _unread(topic: NewTopic, error: KafkaError) -> dict[str, ConfigEntry]:
    """Returns no settings if the client is not allowed to read them; raises other errors."""
    if error.code not in _NOT_ALLOWED:
        raise error
    _log.info("settings_of_topic_cannot_be_read", topic=topic.name, reason=str(error))
    return {}


def _unless_grown(topic: NewTopic, error: KafkaError) -> None:
    """Raises why a topic did not get partitions, unless another client was faster."""
    if error.code is ErrorCode.INVALID_PARTITIONS:
        return
    raise KafkaError(
        error.code,
        f"topic {topic.name!r} needs {topic.partitions} partitions and did not get them: {error.message}",
    ) from error


def _unset(topic: NewTopic, lack: Lack, error: KafkaError) -> None:
    if error.code not in _NOT_ALLOWED:
        raise error
    wanted = ", ".join(f"{name}={value}" for name, value in lack.settings.items())
    _log.warning("settings_of_topic_cannot_be_set", topic=topic.name, wanted=wanted, reason=str(error))
