"""The examples in their small form: each ends with a picture and is better than where it began."""

import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

# Example, the packages it needs, what its last sentence measures, by how much this must change.
CASES = [
    ("gymnasium_policy", ["gymnasium", "mujoco"], "return", 5.0),
    ("adversarial_attack", ["sklearn"], "accuracy", -0.2),
    ("calibrate_simulator", [], "relative error", -0.1),
    ("f1_threshold", ["sklearn"], "F1 on test data", 0.02),
    ("spiking_network", ["sklearn"], "test accuracy", 0.3),
    ("onnx_training", ["onnx", "onnxruntime", "sklearn"], "test accuracy", 0.5),
]


def run(name, folder, *options):
    """The last line that the example prints, and what it printed to stderr."""
    # Nothing may depend on a display, nor write outside of its folder; one thread, as in CI.
    settings = {"HOME": str(folder), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    environment = {k: v for k, v in os.environ.items() if k != "DISPLAY"} | settings
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1], done.stderr


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Runs the small form of an example once; gives its folder and what `run` gives."""

    @cache
    def once(name):
        folder = tmp_path_factory.mktemp(name)
        return folder, *run(name, folder, "--small")

    return once


def skip_without(modules):
    for module in ["matplotlib", *modules]:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: cocd[examples]")


def change(sentence, measure):
    """From and to, as the last sentence has them."""
    found = re.search(rf"{measure} from (-?[\d.]+) to (-?[\d.]+)", sentence)
    assert found, sentence
    return float(found[2]) - float(found[1])


@pytest.mark.parametrize(("name", "modules", "measure", "least"), CASES, ids=[c[0] for c in CASES])
def test_an_example(name, modules, measure, least, small):
    skip_without(modules)
    folder, sentence, progress = small(name)
    gained = change(sentence, measure)
    assert gained * least > 0 and abs(gained) >= abs(least), sentence
    picture = folder / "runs" / "examples" / f"{name}.png"
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and sentence.endswith(".png")
    assert len(progress.splitlines()) > 1  # one line on a terminal, rewritten


def test_out_names_the_file_of_the_picture(tmp_path):
    skip_without(["sklearn"])
    sentence, _ = run("f1_threshold", tmp_path, "--small", "--out", "a/b.png")
    assert sentence.endswith("a/b.png") and (tmp_path / "a" / "b.png").exists()
    assert not (tmp_path / "runs").exists()


def test_the_trained_onnx_model_is_a_model_of_its_own(small):
    """Run without feeding weights, it is as good as the last sentence says."""
    skip_without(["onnx", "onnxruntime", "sklearn"])
    import numpy as np
    import onnxruntime
    from sklearn.datasets import load_digits

    folder, sentence, _ = small("onnx_training")
    session = onnxruntime.InferenceSession(folder / "runs" / "examples" / "onnx_training.onnx")
    pixels, labels = load_digits(return_X_y=True)
    x = (pixels.reshape(-1, 4, 2, 4, 2) / 8 - 1).mean(axis=(2, 4)).reshape(-1, 16)
    (scores,) = session.run(["scores"], {"x": x.astype(np.float32)})
    found = re.search(r" to ([\d.]+),", sentence)
    assert found and abs(np.mean(scores.argmax(axis=1) == labels) - float(found[1])) < 0.05


def test_every_example_of_this_kind_is_tested_and_told_of():
    here = {path.stem for path in EXAMPLES.glob("*.py") if "--small" in path.read_text()}
    here -= {"digits"}  # the demo, which has tests of its own
    assert here == {case[0] for case in CASES}
    told = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    assert all(f"examples/{name}.py" in told for name in here)
