"""The weights of an ONNX model, trained through an engine that can only run it.

    python examples/onnx_training.py [--small] [--out FILE.png]

Needs cocd, onnx, onnxruntime, scikit-learn and matplotlib (cocd[examples]). Where a model is
deployed there is often no framework that could train it: this engine runs graphs and has no
backward pass. The weights are initialisers that the graph also lists as inputs: constants by
default, overridden by feeding others. `cocd.AskTell` proposes vectors of weights, the loop in
`main` feeds them. The trained ones are written back into a model file, beside the picture.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from matplotlib.figure import Figure
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import cocd


def build(weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A network of two layers that takes images and gives the scores of ten digits."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "w2", "b2"], ["scores"]),
    ]
    number = TensorProto.FLOAT
    shapes = {"x": ["count", len(weights["w1"])]} | {k: w.shape for k, w in weights.items()}
    inputs = [helper.make_tensor_value_info(name, number, s) for name, s in shapes.items()]
    outputs = [helper.make_tensor_value_info("scores", number, ["count", 10])]
    constants = [numpy_helper.from_array(w, name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "digits", inputs, outputs, constants)
    opset = helper.make_opsetid("", 17)
    model = helper.make_model_gen_version(graph, opset_imports=[opset])
    onnx.checker.check_model(model)
    return model


def named(vector: np.ndarray, like: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A vector as arrays with the names and shapes of these, in float32 as the graph has them."""
    ends = np.cumsum([w.size for w in like.values()])
    parts = np.split(vector.astype(np.float32), ends[:-1])
    return {k: p.reshape(w.shape) for (k, w), p in zip(like.items(), parts, strict=True)}


def cross_entropy(scores: np.ndarray, labels: np.ndarray) -> float:
    scores = scores.astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    picked = scores[np.arange(len(labels)), labels]
    return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - picked))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="fewer pixels, units and evaluations")
    parser.add_argument("--out", type=Path, default=Path("runs/examples/onnx_training.png"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)

    pixels, digits = load_digits(return_X_y=True)
    images = pixels.reshape(-1, 8, 8) / 8 - 1
    if args.small:  # squares of four pixels as one
        images = images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4))
    images = images.reshape(len(images), -1).astype(np.float32)
    x, x_test, y, y_test = train_test_split(images, digits, train_size=1000, random_state=0)
    hidden, evaluations = (8, 6_000) if args.small else (16, 60_000)

    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(0, x.shape[1] ** -0.5, (x.shape[1], hidden)).astype(np.float32),
        "b1": np.zeros(hidden, np.float32),
        "w2": rng.normal(0, hidden**-0.5, (hidden, 10)).astype(np.float32),
        "b2": np.zeros(10, np.float32),
    }
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the graph is too small to be shared among threads
    model = build(weights)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def scores(vector: np.ndarray, images: np.ndarray) -> np.ndarray:
        return session.run(["scores"], {"x": images, **named(vector, weights)})[0]

    def loss(vector: np.ndarray) -> float:
        return cross_entropy(scores(vector, x), y)

    def accuracy(vector: np.ndarray) -> float:
        return float(np.mean(scores(vector, x_test).argmax(axis=1) == y_test))

    x0 = np.concatenate([w.ravel() for w in weights.values()])
    curve, started = [], time.process_time()
    search = cocd.AskTell(x0, maxfev=evaluations, rng=0)
    while not search.done:
        search.tell([loss(point) for point in search.ask()])
        curve.append((search.nfev, search.fun, accuracy(search.x)))
        text = f"\r{search.nfev:,} of {evaluations:,} evaluations, loss {search.fun:.4f}"
        print(text, end="", file=sys.stderr, flush=True)
    seconds = time.process_time() - started
    print(file=sys.stderr)

    trained = args.out.with_suffix(".onnx")
    onnx.save(build(named(search.x, weights)), trained)
    draw(args.out, curve)
    print(
        f"test accuracy from {accuracy(x0):.3f} to {accuracy(search.x):.3f}, training loss "
        f"{loss(x0):.3f} and {search.fun:.3f}, {len(x0):,} weights, {search.nfev:,} evaluations, "
        f"{seconds:.1f} s of processor time; model: {trained}; picture: {args.out}"
    )


def draw(path: Path, curve: list[tuple[int, float, float]]) -> None:
    """Loss and accuracy over evaluations."""
    evaluations, losses, accuracies = zip(*curve, strict=True)
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(evaluations, losses)
    left.set(xlabel="evaluations", ylabel="training loss", ylim=(0, None))
    right.plot(evaluations, accuracies)
    right.set(xlabel="evaluations", ylabel="test accuracy", ylim=(0, 1))
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
