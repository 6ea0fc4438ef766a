"""What it costs a broker to be watched: by metrics, by the console."""
