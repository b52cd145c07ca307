"""The model as a graph of calls."""
