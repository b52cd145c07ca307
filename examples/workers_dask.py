"""The same on a Dask cluster: here two local processes, elsewhere Client("scheduler:8786")."""

import numpy as np
from dask.distributed import Client, LocalCluster

import cocd


def simulate(x):
    return float(((x - 1) ** 2).sum())


if __name__ == "__main__":
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        result = cocd.minimize(
            simulate, np.zeros(8), method="cocd", lr=0.2, eps=0.1, workers=client, timeout=30
        )
    print(result)
