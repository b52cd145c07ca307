"""Dask, Ray and MPI, really started on this machine; what is not installed is skipped."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from blackboxes import nan, raises, ticking

import cocd

EXAMPLES = Path(__file__).parents[3] / "examples"
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")


def needs(module, extra):
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed: cocd[{extra}]")


def run(command, home):
    # A home of its own: Ray leaves files there.
    environment = {**os.environ, "HOME": str(home), "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, cwd=home
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def here():
    """What the examples do, without their workers."""
    result = cocd.minimize(
        lambda x: float(((x - 1) ** 2).sum()), np.zeros(8), method="cocd", lr=0.2, eps=0.1
    )
    result.nretried, result.failures = 0, []
    return str(result)


def test_the_example_with_processes(tmp_path):
    assert run([sys.executable, str(EXAMPLES / "workers_pool.py")], tmp_path).rstrip() == here()


@needs("distributed", "dask")
def test_the_example_with_dask(tmp_path):
    assert run([sys.executable, str(EXAMPLES / "workers_dask.py")], tmp_path).rstrip() == here()


@needs("ray", "ray")
def test_the_example_with_ray(tmp_path):
    printed = run([sys.executable, str(EXAMPLES / "workers_ray.py")], tmp_path)
    assert here() in printed


@needs("mpi4py", "mpi")
@pytest.mark.skipif(MPIEXEC is None, reason="there is no mpiexec: cocd[mpi], or an MPI of its own")
def test_the_example_with_two_mpi_ranks(tmp_path):
    script = str(EXAMPLES / "workers_mpi.py")
    command = [MPIEXEC, "-n", "2", sys.executable, "-m", "mpi4py.futures", script]
    assert run(command, tmp_path).rstrip() == here()


@needs("distributed", "dask")
def test_dask_by_client_and_by_map_with_failures():
    from dask.distributed import Client, LocalCluster

    options = {"method": "cocd", "lr": 0.01, "eps": 0.1, "compute_budget": 4, "maxiter": 3}
    reference = cocd.minimize(nan, np.ones(6), **options)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        for workers in (client, client.map):
            result = cocd.minimize(raises, np.ones(6), **options, workers=workers)
            assert result.x.tobytes() == reference.x.tobytes() and result.nfailed == 2
            assert result.failures == [("RuntimeError: the mesh is bad", 2)]
        result = cocd.minimize(
            ticking, [1.0], method="cocd", lr=0.0, eps=0.1, ftol=None, maxiter=3, workers=client
        )
        assert result.fun == 1 - result.nfev  # the same three points, evaluated each time
