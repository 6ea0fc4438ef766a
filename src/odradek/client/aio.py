"""The asynchronous clients: for programs with an event loop of their own. They start no thread."""

from odradek.client.admin.aio import AsyncAdmin
from odradek.client.consumer.aio import AsyncConsumer
from odradek.client.producer.aio import AsyncProducer
from odradek.client.share.aio import AsyncShareConsumer

__all__ = ["AsyncAdmin", "AsyncConsumer", "AsyncProducer", "AsyncShareConsumer"]
