"""Multi-head attention: its projections move one unit; from the attention on it is dense."""

from __future__ import annotations
