"""Plans: what a design is, the facts it uses, the plan it makes and its price. No data, no engine."""
