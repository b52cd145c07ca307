"""Small training problems that nobody tuned: ``python benchmarks suite``.

`problems` has them, `peers` the methods and their grids of rates, `measure` makes one row of one
run, `table` reads rows alone.
"""
