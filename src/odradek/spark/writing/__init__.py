"""Rows of a DataFrame as records."""
