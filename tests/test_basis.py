from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from cocd.basis import Basis, Hadamard, Identity, Rotation

BASES = [Identity, Rotation, Hadamard]


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("n", [1, 2, 7, 64, 100])
def test_vectors_are_orthonormal_and_transforms_agree_with_them(
    kind: Callable[..., Basis], n: int
) -> None:
    basis = kind(n)
    matrix = torch.stack([basis.vector(i) for i in range(n)], 1)
    assert torch.allclose(matrix.T @ matrix, torch.eye(n, dtype=torch.float64), atol=1e-12)
    x = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(basis.combine(x), matrix @ x)
    assert torch.allclose(basis.coefficients(x), matrix.T @ x)


@pytest.mark.parametrize("kind", [Rotation, Hadamard])
def test_the_seed_decides_the_basis(kind: Callable[..., Basis]) -> None:
    assert torch.equal(kind(9, seed=3).vector(2), kind(9, seed=3).vector(2))
    assert not torch.equal(kind(9, seed=3).vector(2), kind(9, seed=4).vector(2))


def test_transforms_return_new_tensors() -> None:
    x = torch.ones(3, dtype=torch.float64)
    Identity(3).combine(x)[0] = 5.0
    assert x[0] == 1.0


@pytest.mark.parametrize("kind", BASES)
def test_a_dimension_that_is_no_positive_integer_is_refused(kind: Callable[..., Basis]) -> None:
    with pytest.raises(ValueError, match="n must be"):
        kind(0)


def test_a_rotation_too_large_to_store_is_refused() -> None:
    with pytest.raises(ValueError, match="use Hadamard"):
        Rotation(10_001)


def test_hadamard_transforms_a_million_coordinates_without_a_matrix() -> None:
    basis = Hadamard(1_000_003)
    x = torch.randn(1_000_003, dtype=torch.float64)
    assert torch.allclose(basis.combine(basis.coefficients(x)), x)
