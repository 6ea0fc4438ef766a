"""Columns of the declared schema, and values that fit types exactly."""
