"""Every real table at hand: the default regressor and classifier fit it, without an exception.

The directory (--data, or GREENFOLD_DATA) holds uci/<name>/data.csv.gz and tables/kin8nm.csv, whose last
column is a number; tables/<name>.csv.gz, whose last column is a class; and tables/weka_numeric.zip with
ARFF files, whose last attribute is a number. Columns become numbers as they do on the command line:
categories one-hot, gaps filled. At most 1500 rows are fitted to, a third as many judge. R² or accuracy
and log-loss on those, and CPU time of one thread; the exit code says if a fit failed.

    python benchmarks/tables.py [--data DIR] [--rows 1500] [--seed 0] [--only wine letter …]
"""

import argparse
import csv
import os
import re
import sys
import time
import traceback
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from sklearn.metrics import log_loss

from greenfold import IGLClassifier, IGLRegressor
from greenfold.table import Table


class Real(NamedTuple):
    name: str
    frame: pa.Table  # without the target
    y: np.ndarray  # numbers or names of classes
    weka: bool = False


def tables(data: Path) -> Iterator[Real]:
    """All tables of the directory, in order."""
    for path in [*sorted(data.glob("uci/*/data.csv.gz")), *sorted(data.glob("tables/*.csv*"))]:
        frame = pa.csv.read_csv(
            path, read_options=pa.csv.ReadOptions(autogenerate_column_names=True)
        )
        *_, target = frame.column_names
        y = frame[target].to_numpy()
        if path.parent.name == "tables" and path.suffix == ".gz":
            y = y.astype(str)
        name = path.name.split(".")[0]
        yield Real(path.parent.name if name == "data" else name, frame.drop_columns([target]), y)
    for archive in sorted(data.glob("tables/*.zip")):
        with zipfile.ZipFile(archive) as files:
            for name in sorted(files.namelist()):
                yield arff(Path(name).stem, files.read(name).decode("latin-1"))


def arff(name: str, text: str) -> Real:
    """Numbers, and categories by their names; a question mark is a gap."""
    head, body = re.split(r"(?im)^\s*@data.*$", text, maxsplit=1)
    kinds = re.findall(r"(?im)^\s*@attribute\s+(?:'[^']*'|\S+)\s*(.+?)\s*$", head)
    lines = [line.strip() for line in body.splitlines()]
    rows = list(
        csv.reader(
            [line for line in lines if line and line[0] != "%"],
            skipinitialspace=True,
            quotechar="'",
        )
    )
    columns = {}
    for j, (kind, values) in enumerate(zip(kinds, zip(*rows, strict=True), strict=True)):
        known = [None if v.strip() == "?" else v.strip() for v in values]
        if not kind.startswith("{"):
            known = [None if v is None else float(v) for v in known]
        columns[f"x{j}"] = known
    y = np.array(columns.popitem()[1], dtype=float)
    there = np.isfinite(y)
    return Real(name, pa.table(columns).filter(pa.array(there)), y[there], weka=True)


def fit(real: Real, most: int, seed: int) -> str:
    """What is printed of a table."""
    n = len(real.y)
    order = np.random.default_rng(seed).permutation(n)
    n_train = min(most, 3 * n // 4)
    train, test = order[:n_train], order[n_train : n_train + max(1, most // 3)]
    table = Table.learn(real.frame.take(pa.array(train)))
    X, X_test = (table.encode(real.frame.take(pa.array(rows))) for rows in (train, test))
    begin = time.process_time()
    if real.y.dtype.kind == "f":
        model = IGLRegressor(random_state=seed).fit(X, real.y[train])
        score = f"R² {model.score(X_test, real.y[test]):7.3f}"
    else:
        model = IGLClassifier(random_state=seed).fit(X, real.y[train])
        seen = np.isin(real.y[test], model.classes_)
        loss = log_loss(
            real.y[test][seen], model.predict_proba(X_test[seen]), labels=model.classes_
        )
        score = f"acc {model.score(X_test, real.y[test]):6.3f}  log-loss {loss:6.3f}"
    seconds = time.process_time() - begin
    used = model.standings_[0].name
    return f"{X.shape[0]:5d} × {X.shape[1]:<4d}{score:<32}{seconds:7.1f} CPU-s  {used}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("GREENFOLD_DATA"))
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    if options.data is None or not Path(options.data).is_dir():
        parser.error("say where the tables are, with --data DIR or GREENFOLD_DATA.")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done, failed = 0, []
    for real in tables(Path(options.data)):
        if options.only and real.name not in options.only:
            continue
        try:
            told = fit(real, options.rows, options.seed)
        except Exception:  # the next table is fitted all the same
            failed.append(real.name)
            told = f"failed\n{traceback.format_exc()}"
        done += 1
        print(f"{real.name:<16}{told}", flush=True)
    print(f"{done} tables, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return bool(failed) or not done


if __name__ == "__main__":
    sys.exit(main())
