"""Rows that could not be handled: how they travel to the sink, and what is written of them."""
