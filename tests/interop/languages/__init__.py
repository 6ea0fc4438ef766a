"""Clients written in other languages, as programs that are built outside the repository."""
