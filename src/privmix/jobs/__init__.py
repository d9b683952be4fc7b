"""Jobs: what a user asks for, from the question to the answer; the command line and Python run the same ones."""
