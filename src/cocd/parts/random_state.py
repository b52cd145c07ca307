"""The state of torch's default random generators during a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor


class RandomState:
    """The states of the default generators of the CPU and of the given devices."""

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self._devices = sorted({d for d in devices if d.type != "cpu"}, key=str)
        self._before = self._after = self._get()

    def mark(self) -> None:
        self._after = self._get()

    def rewind(self) -> None:
        self._set(self._before)

    @property
    def drawn(self) -> bool:
        """Whether the first evaluation drew from the CPU generator."""
        return not torch.equal(self._before[0], self._after[0])

    @property
    def moved(self) -> bool:
        """Whether the CPU generator has been used since the first evaluation."""
        return not torch.equal(torch.default_generator.get_state(), self._after[0])

    @property
    def rewind_cpu(self) -> Callable[[], object]:
        """A fast `rewind` for the CPU generator alone."""
        return partial(torch.default_generator.set_state, self._before[0])

    @property
    def has_devices(self) -> bool:
        return bool(self._devices)

    def finish(self) -> None:
        self._set(self._after)

    def _get(self) -> list[Tensor]:
        return [torch.default_generator.get_state()] + [
            torch.get_device_module(d).get_rng_state(d) for d in self._devices
        ]

    def _set(self, states: list[Tensor]) -> None:
        torch.default_generator.set_state(states[0])
        for i, device in enumerate(self._devices):
            torch.get_device_module(device).set_rng_state(states[i + 1], device)
