"""The same on Ray: its pool, and actors that keep something expensive between evaluations."""

import numpy as np
import ray
from ray.util.multiprocessing import Pool

import cocd


def simulate(x):
    return float(((x - 1) ** 2).sum())


@ray.remote(num_cpus=1)
class Simulator:
    def run(self, f, point):
        return f(point)


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False)
    pool = Pool(2)
    result = cocd.minimize(simulate, np.zeros(8), method="cocd", lr=0.2, eps=0.1, workers=pool.map)
    actors = [Simulator.remote() for _ in range(2)]

    def on_actors(f, points):
        return [actors[k % 2].run.remote(f, point) for k, point in enumerate(points)]

    again = cocd.minimize(simulate, np.zeros(8), method="cocd", lr=0.2, eps=0.1, workers=on_actors)
    assert np.array_equal(again.x, result.x)
    pool.terminate()
    ray.shutdown()
    print(result)
