"""The methods of `cocd.baselines`, one per file."""
