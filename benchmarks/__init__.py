"""``cocd bench``: what a step costs, where its time goes, how exact its differences are.

`workloads` says what is measured, `blocks` on which coordinates, `lane` takes a step apart;
`measure`, `scaling`, `precision` and `overhead` each turn measurements into rows, `report` turns
rows into tables and files.
"""
