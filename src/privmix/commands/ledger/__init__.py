"""The ledger of privacy budgets, and its entries."""
