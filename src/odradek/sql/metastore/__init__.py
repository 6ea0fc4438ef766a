"""What exists: sources, types, functions and queries as one value; declared columns; ids of queries."""
