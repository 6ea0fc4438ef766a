"""The processors of keyed operators: rows in, updates out, over a narrow store. Does not import Spark."""
