"""The command line, and the demo in a tiny form."""

import importlib
import json
import math
import sys
from html.parser import HTMLParser

import pytest
import torch
from cocd_paper import cli as _cli
from matplotlib.image import imread

import cocd
from benchmarks.demo import methods, results, task, train

STEPS = 10


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "made" / "by the demo"
    assert _cli.main(["demo", "--quiet", "--steps", str(STEPS), "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def outcome(out):
    return json.loads((out / "results.json").read_text())


def by_method(outcome):
    return {row["method"]: row for row in outcome["rows"]}


# --- the demo ----------------------------------------------------------------------------


def test_zeroth_order_methods_spend_equal_evaluations(outcome):
    rows = by_method(outcome)
    assert set(rows) == {"CoCD", "BCCD", "SPSA", "SGD"}
    assert {rows[m]["evaluations"] for m in ("CoCD", "BCCD", "SPSA")} == {33 * STEPS}
    assert [rows[m]["steps"] for m in ("CoCD", "BCCD", "SPSA")] == [STEPS, STEPS, 33]
    assert rows["SGD"]["first_order"]
    assert rows["SGD"]["steps"] == rows["SGD"]["evaluations"] == STEPS


def test_results_say_all_it_takes_to_run_it_again(outcome):
    rows = by_method(outcome)
    for method in methods.methods(seed=0):
        assert rows[method.name]["settings"] == method.settings
    assert outcome["seed"] == 0
    assert outcome["task"]["parameters"] == 1898
    assert outcome["task"]["training_rows"] + outcome["task"]["test_rows"] == 1797
    assert outcome["versions"]["torch"] == torch.__version__
    assert outcome["versions"]["cocd"] == cocd.__version__


def test_it_computes_on_one_thread_and_leaves_the_setting_alone(tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert _cli.main(["demo", "--quiet", "--steps", "1", "--out", str(tmp_path)]) == 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert json.loads((tmp_path / "results.json").read_text())["machine"]["threads"] == 1


def test_rows_stand_in_the_order_of_what_the_run_gave(outcome):
    accuracies = [row["test_accuracy"] for row in outcome["rows"]]
    assert accuracies == sorted(accuracies, reverse=True)


def test_curves_begin_at_the_same_weights_and_end_at_the_rows_figures(outcome):
    assert len({row["curve"][0]["test_loss"] for row in outcome["rows"]}) == 1
    for row in outcome["rows"]:
        evaluations = [point["evaluations"] for point in row["curve"]]
        assert evaluations == sorted(set(evaluations))
        end = row["curve"][-1]
        for key in ("evaluations", "test_loss", "test_accuracy", "seconds"):
            assert end[key] == row[key]
        assert end["test_loss"] != row["curve"][0]["test_loss"]


def test_plot_is_an_image(out):
    height, width, _ = imread(out / "plot.png").shape
    assert (width, height) == (1500, 690)


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_page_needs_no_network(out):
    text = (out / "index.html").read_text()
    for outside in ("http:", "https:", "url(", "@import", "fetch(", "import("):
        assert outside not in text
    for tag, attrs in Tags(text).tags:
        assert tag not in ("link", "img", "iframe")
        assert not {"src", "href"} & set(attrs)


def test_page_shows_the_rows(out, outcome):
    page = Tags((out / "index.html").read_text())
    charts = [json.loads(a["data-chart"]) for tag, a in page.tags if tag == "svg"]
    rows = by_method(outcome)
    for chart, key in zip(charts, ("test_accuracy", "test_loss"), strict=True):
        assert {c["name"] for c in chart["curves"]} == {"CoCD", "BCCD", "SPSA"}
        for curve in chart["curves"]:
            expected = [[p["evaluations"], p[key]] for p in rows[curve["name"]]["curve"]]
            assert [point[:2] for point in curve["points"]] == expected
        assert [(e["name"], e["value"]) for e in chart["ends"]] == [("SGD", rows["SGD"][key])]
    for row in outcome["rows"]:
        assert f"{row['test_accuracy']:.1%}" in page.text
        assert f"{row['test_loss']:.3f}" in page.text


def test_terminal_shows_progress_table_and_files(tmp_path, capsys):
    assert _cli.main(["demo", "--steps", "2", "--seed", "3", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    lines = [line for line in shown.splitlines() if "│" in line]
    assert [line.split("│")[1].strip() for line in lines] == [row["method"] for row in rows]
    for line, row in zip(lines, rows, strict=True):
        assert f"{row['test_accuracy']:.1%}" in line
        assert f"{row['evaluations']:,}" in line
    assert "10/10" in shown and "33/33" in shown
    assert shown.split()[-1].endswith("index.html")


def test_quiet_says_where_the_files_are_and_no_more(tmp_path, capsys):
    assert _cli.main(["demo", "--quiet", "--steps", "1", "--out", str(tmp_path)]) == 0
    names = ("results.json", "plot.png", "index.html")
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / name) for name in names]
    assert all((tmp_path / name).stat().st_size for name in names)


def test_a_run_depends_on_its_seed_alone(outcome):
    def curve(seed):
        plan = methods.equal_evaluations(methods.methods(seed), STEPS)
        method, steps = plan[2]  # SPSA: the only one that draws numbers of its own
        row = train.train(method, task.digits(seed), steps, seed, lambda point: None)
        return [point.test_loss for point in row.curve]

    torch.manual_seed(99)
    recorded = [point["test_loss"] for point in by_method(outcome)["SPSA"]["curve"]]
    assert curve(0) == pytest.approx(recorded, rel=1e-5)
    assert curve(1) != pytest.approx(recorded, rel=1e-5)


def test_a_method_that_diverges_is_a_result(tmp_path, capsys, monkeypatch):
    def with_absurd_rates(seed):
        good, *others = [m for m in planned(seed) if m.name != "BCCD"]
        return [good] + [m._replace(settings={**m.settings, "lr": 1e38}) for m in others]

    planned = methods.methods
    monkeypatch.setattr(methods, "methods", with_absurd_rates)
    assert _cli.main(["demo", "--steps", "10", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [row["diverged_at"] for row in rows] == [None, 2, 2]
    assert rows[0]["method"] == "CoCD"  # whatever the accuracy the others had on the way
    assert rows[0]["evaluations"] == 10 * 33
    assert capsys.readouterr().out.count("diverged at step 2") == 2
    assert (tmp_path / "index.html").read_text().count("diverged at step 2") == 2
    assert (tmp_path / "plot.png").stat().st_size


# --- its parts ---------------------------------------------------------------------------


@pytest.mark.parametrize("validation", [False, True])
def test_only_training_rows_set_the_scale(validation):
    digits = task.digits(0, validation=validation)
    assert digits.train.x.mean().item() == pytest.approx(0, abs=1e-5)
    assert digits.train.x.std().item() == pytest.approx(1, abs=1e-3)
    assert digits.test.x.mean().item() != pytest.approx(0, abs=1e-5)


def test_validation_rows_are_training_rows():
    def images(rows):
        # Undo the scale: the pixels are whole numbers from 0 to 16.
        low, high = rows.x.min(), rows.x.max()
        return {
            tuple(image.tolist())
            for image in ((rows.x - low) / (high - low) * 16).round().int().flatten(1)
        }

    final, chosen = task.digits(0), task.digits(0, validation=True)
    assert images(chosen.test) <= images(final.train)
    assert not images(chosen.test) & images(final.test)


def test_methods_step_as_they_are_said_to_cost():
    data = task.digits(0)
    for method in methods.methods(seed=0):
        row = train.train(method, data, 3, 0, lambda point: None)
        assert row.evaluations == 3 * method.cost


def test_making_the_network_leaves_the_global_random_numbers_alone():
    before = torch.get_rng_state()
    assert torch.equal(task.network(5)[0].weight, task.network(5)[0].weight)
    assert torch.equal(torch.get_rng_state(), before)


def test_no_nan_in_the_file(tmp_path):
    row = train.Row("CoCD", {}, False, 1, 3, 0.1, math.nan, math.inf, 1, [])
    outcome = results.collect([row], seed=0, task={})
    results.write(outcome, tmp_path / "results.json")
    (read,) = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert read["test_loss"] is read["test_accuracy"] is None


# --- the command line --------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--version"], ["version"]])
def test_version(words, capsys):
    with pytest.raises(SystemExit) as stop:
        _cli.main(words)
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"cocd {cocd.__version__}\n"


def test_without_a_command_it_lists_them(capsys):
    assert _cli.main([]) == 2
    shown = capsys.readouterr().out
    for command in _cli.COMMANDS:
        assert f"{command.name}" in shown and command.help in " ".join(shown.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["dmo"], "invalid choice: 'dmo'"),
        (["--quick"], "unrecognized arguments: --quick"),
        (["demo", "--steps", "0"], "argument --steps: '0' is not a whole number of at least 1"),
        (["demo", "--steps", "1.5"], "argument --steps: '1.5' is not a whole number"),
        (["demo", "--seed", "-1"], "argument --seed: '-1' is not a whole number from 0 to"),
        (["demo", "--seed", str(2**32)], "is not a whole number from 0 to 4294967295"),
        (["demo", "runs"], "unrecognized arguments: runs"),
    ],
)
def test_bad_arguments(words, sentence, capsys):
    with pytest.raises(SystemExit) as stop:
        _cli.main(words)
    assert stop.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_folder_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert _cli.main(["demo", "--out", str(tmp_path / "file")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"cocd demo: cannot write to {tmp_path / 'file'}: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("package", ["rich", "matplotlib", "sklearn"])
def test_a_missing_extra_is_one_sentence(package, capsys, monkeypatch):
    for name in list(sys.modules):
        if name.startswith("benchmarks.demo") or name.partition(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    assert _cli.main(["demo"]) == 2
    assert capsys.readouterr().err == (
        "cocd demo needs rich, matplotlib and scikit-learn: pip install 'cocd[demo]'\n"
    )


def test_other_import_errors_are_not_hidden(monkeypatch):
    def broken(name):
        raise ModuleNotFoundError("No module named 'typo'", name="typo")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="typo"):
        _cli.main(["demo"])


def test_ctrl_c_is_one_line(tmp_path, capsys, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "train", interrupted)
    assert _cli.main(["demo", "--quiet", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "cocd: interrupted\n"
