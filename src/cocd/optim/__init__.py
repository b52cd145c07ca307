"""Optimizers with torch's interface."""
