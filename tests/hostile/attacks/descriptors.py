"""A broker with few descriptors, connections that take them, and topics that take the rest; then a restart."""

from __future__ import annotations

import time
from typing import Final

from tests.hostile.attack import Attack, Stage
from tests.hostile.attacks.connections import produce_frame
from tests.kit.waiting import seconds_until
from tests.kit.wire import BlockingWire

from odradek.model.errors import OdradekError
from odradek.protocol import decode_response
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic

_LIMIT: Final = 256
_OLD_TOPIC: Final = "old"


def _prepare(stage: Stage) -> None:
    stage.create_topic(_OLD_TOPIC)
    _produce(stage)


def _produce(stage: Stage) -> None:
    with stage.connect(timeout_s=20.0) as peer:
        peer.send(produce_frame(_OLD_TOPIC, 10))
        _, response = decode_response(0, 8, peer.receive())
    code = response.responses[0].partition_responses[0].error_code
    assert code == 0, f"the older topic takes no records: error {code}"


def _too_many_connections(stage: Stage) -> None:
    """More than there are descriptors for; connected clients go on, and afterwards all is well."""
    peers: list[BlockingWire] = []
    try:
        for _ in range(400):
            try:
                peers.append(stage.connect(timeout_s=0.5))
            except OSError:
                continue  # refused is fine
        time.sleep(stage.scale.count(5, 2))
        stage.notes["connections"] = len(peers)
    finally:
        for peer in peers:
            peer.abandon()
    stage.must(
        seconds_until(lambda: _is_served(stage), 20.0) is not None, "no new connection is served afterwards"
    )


def _is_served(stage: Stage) -> bool:
    try:
        with stage.connect(timeout_s=2.0) as peer:
            peer.ask(ApiVersionsRequest(), 0)
    except OSError:
        return False
    return True


def _topics_to_the_limit(stage: Stage) -> None:
    """Topics made by asking for them, until there are no descriptors; an older topic is there after a restart."""
    names = [MetadataRequestTopic(name=f"new-{number}") for number in range(400)]
    with stage.connect() as peer:
        response = peer.ask(MetadataRequest(topics=names, allow_auto_topic_creation=True), 8)
    codes = [topic.error_code for topic in response.topics]
    stage.notes["topics_made"] = codes.count(0)
    stage.notes["error_codes"] = sorted(set(codes))
    _produce(stage)
    broker = stage.victim
    broker.stop()
    try:
        broker.start()
        broker.wait_until_ready()
        _produce(stage)
    except (OdradekError, OSError, AssertionError) as error:
        stage.must(False, f"after the restart: {error}")


ATTACKS: Final = (
    Attack(
        name="connections beyond the limit",
        brokers_in_short=(1,),
        claim="more connections than descriptors: no storm of errors, and service afterwards",
        run=_too_many_connections,
        prepare=_prepare,
        descriptors=_LIMIT,
    ),
    Attack(
        name="topics beyond the limit",
        brokers_in_short=(1,),
        claim="more topics than descriptors are refused, and older ones are there after a restart",
        run=_topics_to_the_limit,
        prepare=_prepare,
        settings={"auto.create.topics.enable": "true"},
        descriptors_kept_max=_LIMIT,
        is_bystander_judged=False,
        descriptors=_LIMIT,
    ),
)
