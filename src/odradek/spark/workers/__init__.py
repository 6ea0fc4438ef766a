"""Spark's Python workers: what each of their tasks begins with, and ends with."""
