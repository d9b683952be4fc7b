"""The recipient's part: mixed rows, arrays in addition to them, and the public facts that learners need."""
