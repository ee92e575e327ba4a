"""The experiments of the paper, one file each, with the paper's claims beside what is measured.

A file has a `TITLE`, a `Config` in three sizes (`TINY` for tests, `QUICK` for minutes, `FULL` for the
page) and three functions:

    run(config, seed) -> dict        numbers of one seed; arrays for the figure under "picture"
    claims(config, runs) -> list     of `Claim`, judged from the runs
    draw(config, runs) -> Figure     the panels of the paper's figure

and, where there is a use for them, `on(config, dataset)`, `prepare(config)` before all seeds, and
`tables(config, runs)` to stand above the claims.
"""

NAMES = (
    "exp1", "exp2", "exp3", "ablation", "exp4", "exp5", "exp6", "exp7", "theory", "cifar10", "tasks",
    "manifolds",
)  # fmt: skip
