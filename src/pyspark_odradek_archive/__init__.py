"""The package in which Spark finds `format("odradek-archive")` by itself: see `pyspark_odradek`."""


def __getattr__(name: str) -> object:
    if name == "DefaultSource":
        try:
            # late-import: Spark loads this module for every format
            from odradek.archive.source import ArchiveDataSource
        except ImportError as error:
            raise AttributeError(f"odradek.archive cannot be imported: {error}") from error
        return ArchiveDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
