"""The same on MPI ranks: mpiexec -n 3 python -m mpi4py.futures examples/workers_mpi.py."""

import numpy as np
from mpi4py.futures import MPIPoolExecutor

import cocd


def simulate(x):
    return float(((x - 1) ** 2).sum())


if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        result = cocd.minimize(
            simulate, np.zeros(8), method="cocd", lr=0.2, eps=0.1, workers=executor, timeout=30
        )
    print(result)
