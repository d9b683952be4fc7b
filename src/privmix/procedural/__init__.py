"""Public data that privmix makes itself: rendered characters and random processes, of no person's records."""
