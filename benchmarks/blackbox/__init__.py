"""`python benchmarks blackbox`: `cocd.minimize` and its peers at equal evaluations.

`problems` says what is minimised, `counted` counts, `peers` minimise, `measure` makes rows of it,
`store` keeps them, `report` and `figure` read rows alone, `options` is the command line.
"""
