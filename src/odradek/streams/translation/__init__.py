"""From the plan to Spark: the same for streams of a broker and for the rows of a test."""
