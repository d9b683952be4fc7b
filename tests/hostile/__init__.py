"""What a stranger may hand over, opened with every verb: nothing may run, be opened or fetched, or fill memory."""
