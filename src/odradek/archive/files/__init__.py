"""The files of an archive: written, read, made larger, removed."""
