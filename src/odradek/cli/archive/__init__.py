"""`odradek archive`."""
