"""Shared types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from torch import nn

State = dict[str, Any]  # from state_dict: numbers, strings, lists, dicts and tensors
Group = dict[str, Any]  # a torch parameter group: its tensors and their options
Modules = nn.Module | Iterable[nn.Module] | None  # modules whose buffers a step preserves
NonFinite = Literal["skip", "raise"]  # the treatment of losses that are not finite
