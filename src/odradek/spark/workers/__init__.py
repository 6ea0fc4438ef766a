"""Spark's Python workers: what each of their tasks begins with and ends with, and the types of results."""
