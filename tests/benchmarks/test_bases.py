from __future__ import annotations

from benchmarks.bases import bases


def test_each_problem_has_a_row_for_each_basis_and_is_lowered() -> None:
    rows = bases(sizes=(16,), seeds=1, lengths=(20,))
    assert len(rows) == 4 * 3
    assert all(row["left"][0] < 0.5 for row in rows)


def test_an_axis_aligned_valley_is_easier_without_a_random_basis() -> None:
    rows = bases(sizes=(32,), seeds=1, lengths=(50,))
    left = {row["basis"]: row["left"][0] for row in rows if row["problem"] == "ellipsoid"}
    assert left[None] < 0.1 * left["rotation"]
