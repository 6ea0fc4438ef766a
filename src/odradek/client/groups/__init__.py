"""Consumer groups from the member's side: two protocols as pure cores, and the service that runs either."""
