"""Reading topics: what a batch reads, and the rows it becomes."""
