"""The command line: verbs of the library, one result per line.

    greenfold fit data.csv --target y --out model.greenfold
    greenfold predict model.greenfold new.csv > predictions.csv

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 the data or the
model would not do (one line says why), 2 the command was not understood, 130 interrupted.

A command is a function with `@app.command()`; errors, notes and `--debug` are taken care of around it.
"""

from greenfold.cli.shell import app, read_model  # isort: skip
from greenfold.cli import learn, predict, sources, look, launch  # isort: skip  (in the order of the help)

__all__ = ["app", "launch", "learn", "look", "predict", "read_model", "sources"]
