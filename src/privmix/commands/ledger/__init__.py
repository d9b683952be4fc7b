"""The ledger of privacy budgets, and what its entries say."""
