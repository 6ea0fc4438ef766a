"""The SQL server: what it costs, and when first rows come."""
