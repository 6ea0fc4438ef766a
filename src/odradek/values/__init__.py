"""What a value of a column is: types, texts, numbers, times, and the formats of records."""
