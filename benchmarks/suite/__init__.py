"""Small training problems that nobody tuned: ``python benchmarks suite``.

`problems` defines the problems, `peers` the methods and their grids of learning rates. `measure`
turns one run into a row, and `table` shows the rows.
"""
