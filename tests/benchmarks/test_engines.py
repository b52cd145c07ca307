"""The benchmarks in tiny forms: what the rows say, not how fast anything is."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from cocd_paper import networks, peak
from torch import nn

import cocd
from benchmarks import (
    blocks,
    command,
    engines,
    language_model,
    mezo,
    overhead,
    precision,
    report,
    scaling,
)
from benchmarks.stepper import ENGINES, Stepper, accelerator
from benchmarks.workloads import RESNET, SARCOS, WORKLOADS


def small_mlp():
    return networks.mlp(3, 5, 4, 2)


def small_cnn():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 10),
    )


MLP = replace(
    SARCOS,
    name="small-mlp",
    network=small_mlp,
    inputs=(3,),
    targets=2,
    batch=8,
    compute_budget=8,
    sequential_block=3,
    batched_block=3,
    seconds=0,
)
CNN = replace(
    RESNET,
    name="small-cnn",
    network=small_cnn,
    inputs=(3, 6, 6),
    batch=8,
    compute_budget=16,
    seconds=0,
)
ALL = [engine for engine in ENGINES if engine != "accelerated" or accelerator()]
PLAIN = ["incremental", "sequential"]
TINY = blocks.Effort(samples=6, rounds=2)


def stepper(workload, engine="incremental"):
    return Stepper(engine, workload.model(), workload.loss, workload.data(), workload.settings)


# --- engines -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    return engines.measure(MLP, ALL, TINY) + engines.measure(CNN, ALL, TINY)


def test_a_row_for_each_workload_and_engine(rows):
    assert [(row["workload"], row["engine"]) for row in rows] == [
        (workload.name, engine) for workload in (MLP, CNN) for engine in ALL
    ]


def test_rows_hold_together(rows):
    for workload in (MLP, CNN):
        mine = {row["engine"]: row for row in rows if row["workload"] == workload.name}
        slow = mine["sequential"]["seconds_per_step"]
        for row in mine.values():
            assert row["seconds_per_step"] > 0
            assert row["ratio_to_sequential"] == pytest.approx(slow / row["seconds_per_step"])
            assert row["seconds_per_epoch"] == pytest.approx(
                row["seconds_per_step"] * workload.steps_per_epoch
            )
            assert isinstance(row["peak_extra_bytes"], int) and row["peak_extra_bytes"] >= 0
            assert 0 < row["slowest_fraction"] <= row["probe_fraction"] <= 1
            assert row["slowest_tensor"] in dict(workload.model().named_parameters())
            assert row["parameters"] == networks.parameters(workload.model())
            assert row["paper_seconds_per_epoch"] == workload.paper_seconds_per_epoch
        assert mine["sequential"]["ratio_to_sequential"] == 1


def test_each_row_was_probed_by_its_engine(rows):
    assert [row["probed_by"] for row in rows] == [{ENGINES[row["engine"]]: 1} for row in rows]


def test_whole_cycles_where_the_workload_says_so(rows):
    for row in rows:
        cycle = row["workload"] == MLP.name and ENGINES[row["engine"]] == "incremental"
        assert row["sampled"] is not cycle
        if cycle:
            assert row["steps_measured"] == row["rounds"] * math.ceil(row["parameters"] / 8)


def test_no_round_is_begun_that_would_take_too_long(rows):
    assert {row["rounds"] for row in rows} == {1}
    (row,) = engines.measure(replace(MLP, seconds=60), ["incremental"], TINY)
    assert row["rounds"] == TINY.rounds
    assert row["ratio_to_sequential"] is None


def test_the_steps_are_real_ones():
    here = stepper(MLP)
    before = [p.clone() for p in here.model.parameters()]
    step = here.step(position=0, coordinates=20)
    assert here.optimizer.evaluations == 41
    assert not any(map(torch.equal, before, here.model.parameters()))
    assert list(step.probes) == ["0.weight", "0.bias"]
    assert min(step.probes.values()) > 0 and step.forward > 0 and step.update > 0
    assert step.seconds == pytest.approx(sum(step.probes.values()) + step.forward + step.update)


def test_an_engine_that_fell_back_is_named(rows):
    row = {**rows[0], "probed_by": {"incremental": 0.25, "batched": 0.75}}
    _, cells = report.engines_table([row])
    assert cells[0][1] == f"{row['engine']} (75.0% batched)"


# --- which coordinates -------------------------------------------------------------------


def test_a_cycle_is_every_coordinate():
    here = stepper(MLP)
    reached = {
        i % here.n for b in blocks.cycle(here.n, 8) for i in range(b.position, b.position + b.size)
    }
    assert reached == set(range(here.n))


def test_spread_blocks_stay_inside():
    for n, size, samples in [(10, 3, 4), (5, 64, 3), (1000, 2, 24), (1, 1, 2)]:
        for block in blocks.spread(n, size, samples):
            assert block.position >= 0 and block.position + block.size <= n


def test_a_full_plan_has_a_block_of_every_tensor():
    here = stepper(CNN)
    plan = blocks.plan(here, CNN, blocks.FULL)
    assert [block.weight for block in plan] == list(here.sizes.values())
    offsets = here.offsets()
    for block, (name, size) in zip(plan, here.sizes.items(), strict=True):
        assert offsets[name] <= block.position
        assert block.position + block.size <= offsets[name] + size
    assert max(block.size for block in plan) == CNN.compute_budget
    assert [name for name, _ in blocks.probed(here, plan)] == list(here.sizes)


def test_memory_is_measured_on_the_first_tensor_of_each_shape():
    here = stepper(CNN)
    chosen = list(blocks.first_of_each_shape(here, blocks.plan(here, CNN, blocks.FULL)))
    names = ("0.weight", "1.weight", "5.weight", "5.bias")  # 1.bias is like 1.weight
    assert [block.position for block in chosen] == [here.offsets()[name] for name in names]


def test_the_paper_s_settings():
    known = [
        (w.name, w.batch, w.compute_budget, w.steps_per_epoch, w.paper_seconds_per_epoch)
        for w in WORKLOADS.values()
    ]
    assert known == [
        ("sarcos-mlp", 64, 64, 695, 6.12),
        ("mnist-cnn", 128, 256, 469, 44.56),
        ("cifar-cnn", 128, 1024, 391, 77.03),
        ("resnet-20", 32, 64, 1563, None),
    ]
    for workload in WORKLOADS.values():
        x, y = workload.data()
        assert len(x) == len(y) == workload.batch


# --- memory ------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [peak.peak_extra_bytes, peak.peak_tensor_bytes])
def test_peak_memory_is_that_of_the_largest_moment(by):
    def work():
        for size in (1 << 22, 1 << 24, 1 << 20):  # 16, 64 and 4 MB, one after the other
            torch.ones(size)

    by(work)
    assert 60e6 < by(work) < 100e6


# --- scaling, precision, overhead --------------------------------------------------------


def test_scaling():
    rows = scaling.scaling((500, 2000), (2, 4, 8), fixed_size=500, fixed_budget=4, rounds=2)
    assert [(row["sweep"], row["compute_budget"]) for row in rows] == [
        ("n", 4),
        ("n", 4),
        ("B", 2),
        ("B", 4),
        ("B", 8),
    ]
    for row in rows:
        for part in ("seconds_per_step", "probe_seconds", "forward_seconds", "update_seconds"):
            assert 0 < row[part] <= row["seconds_per_step"]
    assert len(scaling.summary(rows)) == 2
    columns, cells = scaling.table(rows)
    assert {len(columns)} == set(map(len, cells))


def test_scaling_probes_the_last_layer():
    here = scaling._stepper(500)
    step = here.step(scaling._last_layer(here), 16)
    assert list(step.probes) == ["2.weight"]


def test_precision():
    rows = precision.precision((1e-5, 1e-2), (MLP,), samples=2)
    assert [row["eps"] for row in rows] == [1e-5, 1e-2]
    for row in rows:
        assert row["coordinates"] == 12
        assert 0 < row["incremental_error"] < row["sequential_error"]
        assert 0 < row["radius_error"] < 1e-2
    assert rows[0]["sequential_error"] > 10 * rows[1]["sequential_error"]


def test_precision_leaves_the_weights_alone():
    network = precision._Network(MLP, 2)
    network.errors(0.1)
    for here, exact in zip(network.model.parameters(), network.exact.parameters(), strict=True):
        assert torch.equal(here.double(), exact)


def test_overhead():
    (row,) = overhead.overhead(MLP, pairs=3)
    assert row["evaluations"] == 17
    assert row["seconds_per_step"] > 0 and row["seconds_of_evaluations"] > 0
    low, high = row["overhead_quartiles"]
    assert -1 < low <= row["overhead"] <= high
    assert "17 evaluations" in overhead.sentence(row)


# --- the command -------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(engines, "WORKLOADS", {w.name: w for w in (MLP, CNN)})


def test_the_command_prints_and_writes(tiny, tmp_path, capsys):
    file = tmp_path / "bench.json"
    words = ["engines", "--quick", "--json", str(file), "--engine", *PLAIN, "--workload", MLP.name]
    assert command.main(words) == 0
    shown = capsys.readouterr()
    assert shown.err == f"{MLP.name} ...\n"
    assert "| workload  | engine " in shown.out
    rows = json.loads(file.read_text())
    assert [row["engine"] for row in rows] == PLAIN
    for row in rows:
        assert row["threads"] == torch.get_num_threads()
        assert row["versions"]["cocd"] == cocd.__version__
        assert row["versions"]["torch"] == torch.__version__
        assert f"{1e3 * row['seconds_per_step']:,.2f}" in shown.out


SMALL = {
    scaling: partial(
        scaling.scaling, (500, 2000), (2, 4), fixed_size=500, fixed_budget=4, rounds=1
    ),
    precision: partial(precision.precision, (1e-2,), (MLP,)),
    overhead: partial(overhead.overhead, MLP, pairs=1),
}


@pytest.mark.parametrize(
    ("module", "subject", "sentence"),
    [
        (scaling, "scaling", "Time of the probes over n at fixed B: n^"),
        (precision, "precision", "| small-mlp | 1e-02 |"),
        (overhead, "overhead", "overhead "),
    ],
)
def test_each_subject_prints_a_sentence_and_writes_rows(
    module, subject, sentence, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(module, subject, lambda *_, report, **__: SMALL[module](report=report))
    file = tmp_path / "rows.json"
    assert command.main([subject, "--quick", "--quiet", "--json", str(file)]) == 0
    shown = capsys.readouterr()
    assert sentence in shown.out and not shown.err
    assert json.loads(file.read_text())[0]["versions"]["python"]


def test_a_file_that_cannot_be_written_is_refused_at_once(capsys):
    with pytest.raises(SystemExit) as stop:
        command.main(["overhead", "--json", "no/such/folder/file"])
    assert stop.value.code == 2
    assert "cannot write to no/such/folder/file: No such file" in capsys.readouterr().err


def test_benchmarks_run_without_an_installation():
    root = Path(command.__file__).parents[1]
    words = [sys.executable, "benchmarks", "overhead", "--help"]
    done = subprocess.run(words, cwd=root, check=False)
    assert done.returncode == 0


def test_without_the_accelerator(tiny, monkeypatch, capsys):
    monkeypatch.setattr(engines, "accelerator", lambda: False)
    assert command.main(["engines", "--engine", "accelerated"]) == 2
    assert "pip install 'cocd[fast]'" in capsys.readouterr().err
    words = ["--quick", "--quiet", "--engine", "accelerated", "sequential"]
    assert command.main(["engines", *words, "--workload", MLP.name]) == 0
    shown = capsys.readouterr().out
    assert "| accelerated" not in shown and "Without the accelerator" in shown


# --- networks ----------------------------------------------------------------------------


@pytest.mark.parametrize("shortcut", ["pad", "conv"])
def test_resnet_halves_the_image_twice(shortcut):
    model = networks.resnet20(shortcut=shortcut)
    x = torch.randn(2, 3, 32, 32)
    assert model.blocks(model.stem(x)).shape == (2, 64, 8, 8)
    assert model(x).shape == (2, 10)


def test_networks_take_an_activation():
    makers = (networks.sarcos_mlp, networks.mnist_cnn, networks.cifar_cnn, networks.resnet20)
    for make in makers:
        kinds = {type(module) for module in make(activation=nn.GELU).modules()}
        assert nn.GELU in kinds and not kinds & {nn.Tanh, nn.ReLU}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: networks.mlp(3), "widths must be those of at least inputs and outputs"),
        (lambda: networks.wide_mlp(10), "n must leave room for a hidden unit, got 10"),
        (lambda: networks.resnet20(shortcut="none"), "shortcut must be 'pad' or 'conv'"),
    ],
)
def test_networks_refuse_bad_arguments(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


# --- mezo ---------------------------------------------------------------------------------


def test_mezo_stands_beside_the_loops_written_by_hand():
    rows = mezo.mezo(mezo.QUICK, rounds=1)
    ways = ["cocd", "official", "in place", "two evaluations"]
    assert [row["way"] for row in rows] == 2 * ways
    assert all(row["seconds"] > 0 and row["largest"] > 0 for row in rows)
    assert [row["ratio"] for row in rows if row["way"] == "official"] == [1.0, 1.0]
    assert len(mezo.table(rows)[1]) == 8


@pytest.mark.parametrize("step", [mezo.official_step, mezo.in_place_step])
def test_loop_written_by_hand_descends(step):
    x = torch.nn.Parameter(torch.full((40,), 3.0))
    start = x.detach().clone()
    torch.manual_seed(3)
    step([x], lambda: 1e3 * (x**2).sum())
    end = x.detach()
    assert float((end - start).norm()) > 1e-3 and float(end @ end) < float(start @ start)


def test_language_model_rows_name_what_is_trained():
    rows = language_model.language_model(language_model.QUICK, turns=1)
    assert [row["trained"] for row in rows if row["method"] == "MeZO"] == ["last block"]
    assert {"adapters of layer 0", "adapters of layer 1", "last norm"} <= {
        row["trained"] for row in rows
    }
    for row in rows:
        assert row["ratio"] > 0 and row["traced_seconds"] > 0 and row["closure_seconds"] > 0
