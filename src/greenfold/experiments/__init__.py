"""The experiments of the paper, one file each, with the paper's claims beside what is measured.

A file has a `TITLE`, a `Config` in three sizes (`TINY` for tests, `QUICK` for minutes, `FULL` for the
page) and three functions:

    run(config, seed) -> dict        numbers of one seed; arrays for the figure under "picture"
    claims(config, runs) -> list     of `Claim`, judged from the runs
    draw(config, runs) -> Figure     the panels of the paper's figure
"""

NAMES = ("exp1", "exp2", "exp3", "ablation", "exp4", "exp5", "exp6", "theory")
