"""A metric without a derivative, the macro-averaged F1 of a classifier, optimised directly.

    python examples/f1_threshold.py [--small] [--out FILE.png]

Needs cocd, scikit-learn and matplotlib (cocd[examples]). Eight classes of very different size
overlap. Logistic regression learns probabilities by cross-entropy and, by taking the likeliest
class, neglects the rare ones. One number a class, added to its log-probability, moves all
thresholds at once; they interact, so no scan over one threshold finds them. F1 is a staircase in
these numbers: its derivative is zero wherever it exists. Differences over a radius of 0.3 see the
slope of the stairs. Offsets are chosen on validation data and measured on test data.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import cocd

CLASSES = 8
SHARES = 0.6 ** np.arange(CLASSES)  # each class has 0.6 of the examples of the one before


def f1_scores(offsets: np.ndarray, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """F1 of each class: 2 hits / (examples that are of it + examples taken for it)."""
    taken = (scores + offsets).argmax(axis=1)
    table = np.bincount(labels * CLASSES + taken, minlength=CLASSES**2).reshape(CLASSES, CLASSES)
    return 2 * table.diagonal() / np.maximum(1, table.sum(axis=0) + table.sum(axis=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="fewer examples and evaluations")
    parser.add_argument("--out", type=Path, default=Path("runs/examples/f1_threshold.png"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)

    x, y = make_classification(
        12_000 if args.small else 60_000,
        16,
        n_informative=10,
        n_classes=CLASSES,
        n_clusters_per_class=1,
        weights=SHARES / SHARES.sum(),
        flip_y=0.05,
        random_state=0,
    )
    x, x_rest, y, y_rest = train_test_split(x, y, train_size=1 / 3, random_state=0, stratify=y)
    x_valid, x_test, y_valid, y_test = train_test_split(
        x_rest, y_rest, train_size=0.5, random_state=0, stratify=y_rest
    )
    model = LogisticRegression(max_iter=1000).fit(x, y)
    valid, test = model.predict_log_proba(x_valid), model.predict_log_proba(x_test)

    def both(offsets: np.ndarray) -> list[float]:
        pairs = (valid, y_valid), (test, y_test)
        return [float(f1_scores(offsets, *pair).mean()) for pair in pairs]

    x0 = np.zeros(CLASSES)
    curve = [(1, *both(x0))]

    def progress(intermediate_result) -> None:
        now = intermediate_result
        curve.append((now.nfev, *both(now.x)))
        text = f"\r{now.nfev:,} evaluations, F1 on validation data {-now.fun:.4f}"
        print(text, end="", file=sys.stderr, flush=True)

    started = time.process_time()
    result = cocd.minimize(
        lambda offsets: -f1_scores(offsets, valid, y_valid).mean(),
        x0,
        eps=0.3,
        ftol=None,  # on a staircase a step that gains nothing is not the end
        maxfev=200 if args.small else 1000,
        callback=progress,
        rng=0,
    )
    seconds = time.process_time() - started
    print(file=sys.stderr)

    before = f1_scores(x0, test, y_test)
    after = f1_scores(result.x, test, y_test)
    draw(args.out, curve, before, after)
    print("offsets:", *result.x.round(2))
    print(
        f"F1 on test data from {before.mean():.4f} to {after.mean():.4f} ({-result.fun:.4f} on the "
        f"data the offsets were chosen on) in {result.nfev:,} evaluations and {seconds:.1f} s of "
        f"processor time; picture: {args.out}"
    )


def draw(path: Path, curve: list, before: np.ndarray, after: np.ndarray) -> None:
    """F1 over evaluations, and of each class."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    evaluations, valid, test = zip(*curve, strict=True)
    left.plot(evaluations, valid, label="validation")
    left.plot(evaluations, test, label="test")
    left.set(xlabel="evaluations", ylabel="macro F1", xscale="log")
    left.legend()
    classes = np.arange(CLASSES)
    right.bar(classes - 0.2, before, 0.4, label="likeliest class")
    right.bar(classes + 0.2, after, 0.4, label="with offsets")
    right.set(xlabel="class, the largest first", ylabel="F1 on test data", xticks=classes)
    right.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
