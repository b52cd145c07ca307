"""What a step costs, where its time goes, how exact its differences are: ``python benchmarks``.

Each subject is a module with ``add_arguments(parser)`` and ``run(args) -> exit code``; a line in
`command.SUBJECTS` makes it known. `workloads` says what is measured, `stepper` takes a step apart,
`report` turns rows into tables and files.
"""
