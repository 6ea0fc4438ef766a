"""This broker's place in its cluster: the image that it runs on, and its way to the controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.cluster.controller import Controller
from odradek.cluster.image import ClusterImage, TopicImage
from odradek.cluster.planning import NewTopic
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId

if TYPE_CHECKING:
    from odradek.broker.forwarding import Forwarding


class ClusterLink:
    """Used on the event loop only."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @property
    def image(self) -> ClusterImage:
        """What this broker knows of its cluster, and has applied."""
        return self._controller.image

    @property
    def leads(self) -> bool:
        """Whether this broker is the controller."""
        return True

    @property
    def controller(self) -> Controller:
        """The controller, if it is this broker; NOT_CONTROLLER otherwise."""
        return self._controller

    @property
    def controller_id(self) -> BrokerId | None:
        return self._controller.image.controller_id

    @property
    def forwarding(self) -> Forwarding:
        """Passes requests on to the controller that is not this broker."""
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is known")

    async def create_topics(self, wanted: Sequence[NewTopic]) -> list[TopicImage | KafkaError]:
        """Through the controller, wherever it is: one outcome for each, in order."""
        return await self._controller.create_topics(wanted)

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids, from the controller."""
        return await self._controller.allocate_producer_ids()
