"""The version of Odradek, which clients and brokers name to each other (KIP-511). `pyproject.toml` has the same."""

from typing import Final

__version__: Final = "0.1.0"
