"""The asynchronous clients: for programs with an event loop of their own. They start no thread."""

from odradek.client.aio_admin import AsyncAdmin
from odradek.client.aio_consumer import AsyncConsumer
from odradek.client.aio_producer import AsyncProducer

__all__ = ["AsyncAdmin", "AsyncConsumer", "AsyncProducer"]
