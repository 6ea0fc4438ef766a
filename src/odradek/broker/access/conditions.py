"""The conditions under which a row of the table of access rules applies: `field=value|value`, or one of the names here."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from odradek.broker.access.admission import Admission
from odradek.cluster.image import INTERNAL_TOPICS
from odradek.model.ids import ZERO_UUID
from odradek.protocol.messages.data.produce import ProduceRequest

_VALUES: Final = {"None": None, "True": True}
_SINCE_NULL_IS_ALL: Final = 1
_SINCE_CREATION_FLAG: Final = 4
_MAGIC_POSITION: Final = 16
_MAGIC: Final = 2
_ATTRIBUTES_POSITION: Final = 22
_TRANSACTIONAL_BIT: Final = 0x10


def of_request(when: str, admission: Admission) -> bool:
    """Tells whether the row may apply to the request, without a look at its elements."""
    request = admission.request
    if when == "transactional batches":
        return has_transactional_batches(request)
    if when == "all topics are asked for":
        return request.topics is None or (not request.topics and admission.version < _SINCE_NULL_IS_ALL)
    if when == "would be created":
        return admission.broker.config.topics.auto_create_topics_enable and (
            admission.version < _SINCE_CREATION_FLAG or request.allow_auto_topic_creation
        )
    name, values = _parsed(when)
    return getattr(request, name) in values if hasattr(request, name) else True


def of_element(when: str, admission: Admission, element: Any) -> bool:
    """Tells whether the row applies to one element."""
    if when == "would be created":
        name = element.name
        return (
            element.topic_id == ZERO_UUID
            and name not in admission.broker.image.topics
            and name not in INTERNAL_TOPICS
        )
    if "=" not in when or hasattr(admission.request, _parsed(when)[0]):
        return True
    name, values = _parsed(when)
    return getattr(element, name) in values


@cache
def _parsed(when: str) -> tuple[str, frozenset[object]]:
    name, _, values = when.partition("=")
    return name, frozenset(_VALUES[value] if value in _VALUES else int(value) for value in values.split("|"))


def has_transactional_batches(request: ProduceRequest) -> bool:
    """Tells whether a Produce request has any, by two bytes of each batch's header; damaged or old batches are found later."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                records is not None
                and len(records) > _ATTRIBUTES_POSITION
                and records[_ATTRIBUTES_POSITION] & _TRANSACTIONAL_BIT
                and records[_MAGIC_POSITION] == _MAGIC
            ):
                return True
    return False
