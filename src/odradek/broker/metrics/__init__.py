"""What a broker shows of itself: metrics, probes, and the listener that serves them."""
