"""`cocd bench ranks`: what is measured, what is modelled, what is said."""

import json
import math
from dataclasses import replace

import pytest
from cocd_paper import cli as _cli
from cocd_paper import networks

from benchmarks import command, scaling_ranks, two_ranks
from benchmarks.ranks_figure import write
from benchmarks.scaling_ranks import Line, dominates_from, exchange, message_bytes
from benchmarks.workloads import SARCOS

RANKS = (1, 2, 4, 8)


def small_mlp():
    return networks.mlp(3, 5, 4, 2)


MLP = replace(
    SARCOS,
    name="small-mlp",
    network=small_mlp,
    inputs=(3,),
    targets=2,
    batch=8,
    compute_budget=6,
    sequential_block=2,
)
LANES = [("incremental", MLP), ("sequential", MLP)]


def small(**options):
    return scaling_ranks.scaling_ranks(
        LANES, ranks=RANKS, sizes=(16, 64), count=2, rounds=2, repeats=3, **options
    )


@pytest.fixture(scope="module")
def rows():
    return small()


def test_a_row_for_each_lane_and_number_of_ranks(rows):
    assert [(row["engine"], row["ranks"], row["slice"]) for row in rows] == [
        (engine, ranks, math.ceil(6 / ranks)) for engine, _ in LANES for ranks in RANKS
    ]


def test_rows_hold_together(rows):
    for row in rows:
        assert row["rank_seconds"] > 0
        assert row["step_seconds"] == row["rank_seconds"] + row["exchange_seconds"]
        assert row["ring_step_seconds"] >= row["step_seconds"]
        assert (row["exchange_seconds"] > 0) is (row["ranks"] > 1)
    assert [row["speedup"] for row in rows if row["ranks"] == 1] == [1, 1]


def test_a_real_rank_of_two_is_measured_with_a_traced_objective(rows):
    real = [(row["engine"], row["ranks"]) for row in rows if row["measured_rank_seconds"]]
    assert real == [("incremental", 2)]


def test_probes_of_a_closure_that_were_not_measured_are_multiples(rows):
    own = {row["slice"]: row["rank_seconds"] for row in rows if row["engine"] == "sequential"}
    each = own[2] - own[1]
    assert own[3] - own[2] == pytest.approx(each) and own[6] - own[3] == pytest.approx(3 * each)


def test_an_exchange_by_doubling_and_on_a_ring():
    line = Line(latency=1e-3, per_byte=1e-6)
    assert exchange(line, 1, 64) == (0, 0)
    # 8 words of header, 2 numbers for each of 32 and of 8 coordinates
    assert message_bytes(2, 64) == 8 * (8 + 64) and message_bytes(8, 64) == 8 * (8 + 16)
    assert exchange(line, 2, 64) == pytest.approx((1e-3 + 576e-6, 1e-3 + 576e-6))
    assert exchange(line, 8, 64) == pytest.approx((3e-3 + 7 * 192e-6, 7e-3 + 7 * 192e-6))


def test_noise_does_not_make_large_messages_cheaper():
    assert scaling_ranks.fit([100, 1000, 10_000], [3e-4, 2e-4, 1e-4]) == Line(2e-4, 0.0)


def test_noise_does_not_make_waiting_pay():
    # three points on a line that crosses zero before the smallest message
    line = scaling_ranks.fit([100, 200, 300], [1e-4, 3e-4, 5e-4])
    assert line.latency == 0
    slopes = [1e-6, 1.5e-6, 5e-6 / 3]  # least sum of (slope / own - 1)^2
    weights = [1 / slope for slope in slopes]
    assert line.per_byte == pytest.approx(sum(weights) / sum(w * w for w in weights))


def test_where_communication_begins_to_dominate():
    lane = scaling_ranks.Lane("sequential", MLP.model(), MLP.loss, MLP.data(), MLP.settings)
    own = {6: 9.5, 3: 5.5, 2: 4.0, 1: 2.5}
    per_step = scaling_ranks.exchanges_per_step(list(lane.sizes.values()), 6)
    rows = scaling_ranks._rows(lane, MLP, own, Line(1.0 / per_step, 0.0), RANKS)
    # 9.5 alone; 5.5 + 1, 4 + 2, 2.5 + 3 shared
    assert [row["step_seconds"] for row in rows] == pytest.approx([9.5, 6.5, 6.0, 5.5])
    assert dominates_from(rows) == 8
    assert dominates_from(rows[:3]) is None
    assert dominates_from(rows, "ring_step_seconds") == 8  # 5.5 + 1, 4 + 3, 2.5 + 7


def test_the_picture_is_made_of_rows_alone(rows, tmp_path):
    files = write(rows, tmp_path / "figures")
    assert [file.name for file in files] == ["distributed-ranks.png", "distributed-ranks.svg"]
    first = [file.read_bytes() for file in files]
    assert [file.read_bytes() for file in write(rows, tmp_path / "again")] == first


def test_the_command(rows, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scaling_ranks, "scaling_ranks", lambda *_, **__: rows)
    words = ["--quick", "--quiet", "--json", str(tmp_path / "rows.json"), "--figures"]
    assert _cli.main(["bench", "ranks", *words, str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "| ranks | small-mlp, incremental | small-mlp, sequential |" in shown
    assert shown.count("%)") == len(rows)
    assert "small-mlp, incremental: " in shown and "Of the slower of two real ranks " in shown
    assert len(json.loads((tmp_path / "rows.json").read_text())) == len(rows)
    assert (tmp_path / "distributed-ranks.svg").exists()


def test_figures_are_of_ranks_alone(monkeypatch, tmp_path, capsys):
    assert _cli.main(["bench", "scaling", "--figures", str(tmp_path)]) == 2
    assert "--figures does not go with scaling" in capsys.readouterr().err
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert _cli.main(["bench", "ranks", "--figures", str(tmp_path)]) == 2
    assert "pip install 'cocd[demo]'" in capsys.readouterr().err


def die():
    raise SystemExit(3)


def test_ranks_that_end_early_are_reported():
    plan = two_ranks.Plan((16,), 1, [("incremental", replace(MLP, network=die))], 1, 1)
    with pytest.raises(RuntimeError, match="ended before they had measured"):
        two_ranks.measure(plan)
