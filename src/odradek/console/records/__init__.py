"""Records as the console reads, searches, masks, shows and writes them."""
