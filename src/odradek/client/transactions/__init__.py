"""Transactions from the producer's side: a pure core, the table of errors, and the service that runs them."""
