"""The graphs of one model: recorded, recognised, and cached for reuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from ..kernels.maxpool import window_of
from .graph import Graph, Known, Ref, Run, Seen
from .layers import LayerListener, is_scripted
from .record import Recording
from .replay import fingerprint, is_unchanged, replay
from .rewrite import graph_of
from .same import same

_COMPARED = (Ref, int, float, str, type(None))
_KEPT = 8  # graphs: train and eval mode, the last batch of an epoch, branches


@dataclass
class Version:
    """One path that a pass took through the model."""

    known: Known
    graph: Graph
    # The fingerprint of a model made of torch's own layers.
    plain: list[object] | None = field(default=None, repr=False)


class Followed(NamedTuple):
    """A pass: the output of the model, and its run or the reason why there is none."""

    output: object
    run: Run | None
    problem: str = ""


class Tracer:
    """Runs a model and keeps the graphs it records."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.versions: list[Version] = []  # most recent first
        self._listener = LayerListener(model)
        self._scripted = [type(m).__name__ for m in model.modules() if is_scripted(m)]

    def follow(
        self,
        forward: Callable[[], object],
        inputs: list[Tensor],
        names: dict[int, str],
        whole: bool,
    ) -> Followed:
        """Run the model; `names` maps a parameter's id to its name.

        A model made only of torch's own layers may be replayed instead where that is faster, unless
        `whole` is set.
        """
        if self._scripted:
            return Followed(forward(), None, f"{self._scripted[0]} runs outside Python, unseen")
        version = self.versions[0] if self.versions else None
        if (
            version is not None
            and version.graph.swapped
            and not whole
            and is_unchanged(version.plain, self.model)
        ):
            run = replay(version.graph, inputs)
            return Followed(run.output, run)
        # Keep a known fingerprint; each replay checks that it still holds.
        plain = fingerprint(self.model) if version is None or not version.plain else version.plain
        recording = Recording(self._listener, names, None if version is None else version.known)
        recording.track([] if plain is None else inputs)
        value = recording.run(forward)
        output = recording.output(value)
        if recording.problem:
            return Followed(value, None, recording.problem)
        self._remember(recording, output, names, plain)
        graph = self.versions[0].graph
        run = Run(graph, recording.values, recording.noise, recording.random, value)
        return Followed(value, run.put_in_order())

    def again(self, inputs: list[Tensor]) -> object:
        """Replay the last pass and return its output; None where a replay may be wrong."""
        version = self.versions[0] if self.versions else None
        if version is None or not is_unchanged(version.plain, self.model):
            return None
        return replay(version.graph, inputs).output

    def _remember(
        self,
        recording: Recording,
        output: object,
        names: dict[int, str],
        plain: list[object] | None,
    ) -> None:
        seen = recording.seen
        whole = recording.recognised and len(seen) == len(recording.values)
        if whole and _outputs_alike(self.versions[0].graph.output, output):
            return
        seen = seen[: len(recording.values)]
        for version in self.versions:
            known = version.known.seen
            if (
                len(known) == len(seen)
                and all(map(_alike, known, seen))
                and _outputs_alike(version.graph.output, output)
            ):
                self.versions.remove(version)
                break
        else:
            seen = [
                replace(
                    call,
                    is_plain=_is_plain(
                        call, recording.values[i], i in recording.noise or i in recording.random
                    ),
                )
                for i, call in enumerate(seen)
            ]
            known_now = Known(seen, recording.draws)
            version = Version(known_now, graph_of(known_now, output, self.model, names))
        version.plain = plain if all(call.op != "given" for call in seen) else None
        self.versions = [version, *self.versions][:_KEPT]


def _is_plain(call: Seen, value: object, drew: bool) -> bool:
    simple = call.module is not None and len(call.args) == 1 and not call.kwargs
    return (
        simple
        and type(call.args[0]) is Ref
        and type(value) is Tensor
        and not drew
        and not call.settings.get("inplace", False)
        and not window_of(call.module)
    )


def _alike(a: Seen, b: Seen) -> bool:
    return a is b or (
        a.op == b.op
        and a.target == b.target
        and a.module is b.module
        and _settings_alike(a, b)
        and same(a.args, b.args, _nowhere)
        and same(a.kwargs, b.kwargs, _nowhere)
    )


def _settings_alike(a: Seen, b: Seen) -> bool:
    try:
        return a.settings == b.settings
    except Exception:  # values that cannot be compared count as different
        return False


def _outputs_alike(a: object, b: object) -> bool:
    """Do two outputs have the same structure and the same calls? Opaque objects may differ."""
    (mine, here), (theirs, there) = tree_flatten(a), tree_flatten(b)
    return bool(here == there) and all(
        x == y if isinstance(x, _COMPARED) else type(x) is type(y)
        for x, y in zip(mine, theirs, strict=True)
    )


def _nowhere(tensor: Tensor) -> int | None:
    return None
