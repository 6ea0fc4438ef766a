"""Dead letters: records that could not be handled, kept in a topic with what is known of their failure."""
