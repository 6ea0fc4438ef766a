"""Messages as values: construction, equality, copies, and how they print."""

from __future__ import annotations

import copy
import pickle

import pytest

from odradek.model.ids import ZERO_UUID
from odradek.protocol import APIS, Struct
from odradek.protocol.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from odradek.protocol.messages.data.produce import PartitionProduceData
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest


def test_what_is_left_out_has_kafkas_default() -> None:
    request = FetchRequest()
    assert (request.replica_id, request.max_bytes, request.topics) == (-1, 2**31 - 1, [])
    assert request.cluster_id is None
    assert FetchTopic().topic_id == ZERO_UUID
    assert FetchPartition().high_watermark == 2**63 - 1


def test_messages_do_not_share_their_default_lists() -> None:
    first, other = FetchRequest(), FetchRequest()
    first.topics.append(FetchTopic())
    assert other.topics == []


def test_arguments_are_keywords_and_must_be_fields() -> None:
    with pytest.raises(TypeError):
        FetchRequest(1)  # type: ignore[misc]
    with pytest.raises(TypeError, match="topcis"):
        FetchRequest(topcis=[])  # type: ignore[call-arg]


def test_messages_have_slots_and_no_dictionary() -> None:
    with pytest.raises(AttributeError):
        FetchRequest().surprise = 1  # type: ignore[attr-defined]


def test_equality_is_by_type_and_value() -> None:
    assert MetadataRequestTopic(name="a") == MetadataRequestTopic(name="a")
    assert MetadataRequestTopic(name="a") != MetadataRequestTopic(name="b")
    assert MetadataRequestTopic(name="a") != "a"
    assert PartitionProduceData(records=b"abc") == PartitionProduceData(records=memoryview(b"abc"))
    with pytest.raises(TypeError):
        hash(FetchRequest())


def test_replace_changes_a_copy() -> None:
    before = MetadataRequest(topics=None)
    after = before.replace(allow_auto_topic_creation=False)
    assert (before.allow_auto_topic_creation, after.allow_auto_topic_creation) == (True, False)
    assert after.topics is None
    with pytest.raises(TypeError):
        before.replace(no_such_field=1)


def test_fields_that_are_chosen_at_run_time_are_checked_like_written_ones() -> None:
    assert MetadataRequest.of_values({"topics": None}) == MetadataRequest(topics=None)
    assert MetadataRequest.of_values({}) == MetadataRequest()
    with pytest.raises(TypeError):
        MetadataRequest.of_values({"no_such_field": 1})


def test_messages_can_be_copied_and_pickled() -> None:
    message = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=3)])])
    assert copy.deepcopy(message) == message
    assert pickle.loads(pickle.dumps(message)) == message


def test_repr_shows_what_differs_from_the_defaults() -> None:
    assert repr(MetadataRequest()) == "MetadataRequest()"
    shown = repr(MetadataRequest(topics=[MetadataRequestTopic(name="flights")]))
    assert shown == "MetadataRequest(topics=[MetadataRequestTopic(name='flights')])"
    assert repr(MetadataRequest(topics=None)) == "MetadataRequest(topics=None)"


def test_repr_gives_records_and_secrets_by_weight_only() -> None:
    assert repr(PartitionData(records=b"x" * 5000)) == "PartitionData(records=<5000 bytes>)"
    assert "secret" not in repr(SaslAuthenticateRequest(auth_bytes=b"secret"))


def test_every_message_of_every_api_can_be_made_and_printed() -> None:
    for api in APIS.values():
        for cls in (api.request, api.response):
            assert repr(cls()) == f"{cls.__name__}()"
            assert isinstance(cls(), Struct)
