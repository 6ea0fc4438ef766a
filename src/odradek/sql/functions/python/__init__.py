"""Functions that Spark SQL has no equal for, in plain Python. What registers them is `functions/registering.py`."""
