"""The package in which Spark finds `format("odradek")` by itself.

Spark imports every top-level package named `pyspark_*` and takes its `DefaultSource`. It does so for every
session and every format, so this module costs nothing until it is asked, and never raises: an Odradek that
cannot be imported must not break the other formats.
"""


def __getattr__(name: str) -> object:
    if name == "DefaultSource":
        try:
            # late-import: Spark loads this module for every format
            from odradek.archive.history.read_through import OdradekWithArchive
        except ImportError as error:
            raise AttributeError(f"odradek.spark cannot be imported: {error}") from error
        return OdradekWithArchive
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
