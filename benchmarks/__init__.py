"""The cost of a step, its parts, and the accuracy of differences: ``python benchmarks``.

Each subject is a module with ``add_arguments(parser)`` and ``run(args) -> exit code``, listed in
`command.SUBJECTS`. `workloads` has the networks, `stepper` times the parts of a step, and `report`
turns rows into tables and files.
"""
