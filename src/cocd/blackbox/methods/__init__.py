"""Methods: each chooses the next points from the values so far."""
