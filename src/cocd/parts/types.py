"""Types that several parts share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from torch import nn

State = dict[str, Any]  # as state_dict gives it: numbers, strings, lists, dicts and tensors
Group = dict[str, Any]  # a parameter group of torch: its tensors and the options they share
Modules = nn.Module | Iterable[nn.Module] | None  # whose buffers a step keeps
NonFinite = Literal["skip", "raise"]  # what becomes of estimates from losses that are not finite
