"""An attack on one's own classifier through an interface that gives scores alone.

    python examples/adversarial_attack.py [--small] [--out FILE.png]

Needs cocd, scikit-learn and matplotlib (cocd[examples]). A small network learns scikit-learn's
handwritten digits. The attacker has no weights and no gradients: images go in, scores come out,
and every image is counted. It may change each pixel by at most 0.15 of the range from white to
black, which is what `bounds` say, and looks for the change that brings another digit on top. How
many images fall, and after how many queries, tells how robust the classifier is against it.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import cocd

ALLOWED = 0.15  # the change of a pixel, of 1


class Scores:
    """All that an attacker sees of a classifier."""

    def __init__(self, model: MLPClassifier) -> None:
        self._model = model
        self.queries = 0

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """The logarithms of the probabilities of the ten digits, (k, 10), of k images."""
        self.queries += len(images)
        return self._model.predict_log_proba(images)


def attack(scores: Scores, image: np.ndarray, digit: int, queries: int) -> np.ndarray:
    """The image, changed as far as it takes and is allowed."""

    def lead(images: np.ndarray) -> np.ndarray:
        """By how much the right digit is ahead of the next; `vectorized`: one image a column."""
        given = scores(images.T)
        return given[:, digit] - np.delete(given, digit, axis=1).max(axis=1)

    def stop_when_it_falls(intermediate_result) -> None:
        if intermediate_result.fun < 0:
            raise StopIteration

    low, high = np.clip(image - ALLOWED, 0, 1), np.clip(image + ALLOWED, 0, 1)
    result = cocd.minimize(
        lead,
        image,
        bounds=list(zip(low, high, strict=True)),
        maxfev=queries,
        vectorized=True,
        callback=stop_when_it_falls,
        rng=0,
    )
    return result.x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="fewer images")
    parser.add_argument("--out", type=Path, default=Path("runs/examples/adversarial_attack.png"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)

    pixels, digits = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(pixels / 16, digits, random_state=0)
    model = MLPClassifier((32,), alpha=0.1, max_iter=1000, solver="lbfgs", random_state=0)
    scores = Scores(model.fit(x, y))
    count = 8 if args.small else 200
    images, labels = x_test[:count], y_test[:count]
    right = model.predict(images) == labels

    changed, needed, started = images.copy(), [], time.process_time()
    for i in np.flatnonzero(right):
        scores.queries = 0
        changed[i] = attack(scores, images[i], labels[i], queries=2000)
        needed.append(scores.queries)
        text = f"\r{len(needed)} of {right.sum()} images attacked"
        print(text, end="", file=sys.stderr, flush=True)
    seconds = time.process_time() - started
    print(file=sys.stderr)

    guesses = model.predict(changed)
    draw(args.out, images, changed, labels, guesses, np.flatnonzero(right & (guesses != labels)))
    print(
        f"accuracy from {right.mean():.3f} to {np.mean(guesses == labels):.3f} on {count} images, "
        f"no pixel changed by more than {np.abs(changed - images).max():.2f}, "
        f"{np.median(needed):,.0f} queries an image (median), "
        f"{seconds:.1f} s of processor time; picture: {args.out}"
    )


def draw(path: Path, images, changed, labels, guesses, fallen) -> None:
    """The first images that fell, one a column: original, change, result."""
    columns = fallen[:6]
    figure = Figure(figsize=(1.6 * max(len(columns), 2), 5), layout="constrained")
    axes = figure.subplots(3, max(len(columns), 2), squeeze=False)
    for one in axes.flat:
        one.axis("off")
    for column, i in zip(axes.T, columns, strict=False):
        change = changed[i] - images[i]
        for one, picture, least, colours in (
            (column[0], images[i], 0, "gray_r"),
            (column[1], change, -ALLOWED, "RdBu"),
            (column[2], changed[i], 0, "gray_r"),
        ):
            one.imshow(picture.reshape(8, 8), cmap=colours, vmin=least, vmax=-least or 1)
        column[0].set_title(f"a {labels[i]}")
        column[1].set_title(f"± {np.abs(change).max():.2f}")
        column[2].set_title(f"seen as {guesses[i]}")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
