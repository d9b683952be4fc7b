"""What a stranger may hand over, opened with every verb: nothing of it may run, be opened or fetched, or fill memory."""
