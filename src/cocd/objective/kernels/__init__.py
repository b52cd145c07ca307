"""Fused loops for chains of layers."""
