"""Second moments, and the errors of models that follow from them."""
