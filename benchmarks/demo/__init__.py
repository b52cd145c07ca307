"""``cocd demo``: a small network learns handwritten digits by four methods.

`task` (data, network, loss) and `methods` (what is compared, with which settings) go into
`train`, which gives rows. `results` writes them to a file; `display`, `plot` and `page` only read
them. `command` puts them in order.
"""
