"""What a broker counts, times and traces while it serves. `broker/metrics/` reads it."""
