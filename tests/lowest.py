"""The lowest versions that pyproject.toml declares, and what must work with them.

    python tests/lowest.py pins [extra …]    requirements, every lower bound as a pin
    python tests/lowest.py try [extra …]     the defaults, from Python and from the command line

`make test-lowest` installs the first into an environment of its own and runs the second there: without
extras, as `pip install greenfold` leaves it, then with them. PyTorch is left as it is installed: older
builds for the processor alone are not on PyPI.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
import warnings
from pathlib import Path

from greenfold import Source, Training

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
EXTRAS = ("plots", "export", "tracking")


def pins(extras):
    """name==version for every name>=version."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    found = [re.fullmatch(r"([\w-]+)>=([\d.]+)", line) for line in wanted]
    assert all(found), f"a lower bound is missing among {wanted}"
    return [
        f"{name}=={version}" for name, version in (f.groups() for f in found) if name != "torch"
    ]


def installed(extras):
    """The versions at hand are those that are meant."""
    from importlib.metadata import version

    for pin in pins(extras):
        name, low = pin.split("==")
        have = version(name).split(".")
        assert have[: len(low.split("."))] == low.split("."), (
            f"{name} {low} is declared, got {have}"
        )


def rows():
    import numpy as np

    X = np.random.default_rng(0).normal(size=(80, 3))
    return X, np.sin(X[:, 0]) + 0.1 * X[:, 1]


def from_python(folder):
    """Every default: fit, predict, save, load, the same bits."""
    import numpy as np

    import greenfold

    X, y = rows()
    generator = np.random.RandomState(0)  # its state is kept in the file
    models = [
        greenfold.IGLRegressor(random_state=generator).fit(X, y),
        greenfold.IGLRegressor(chart="mlp", random_state=0, training=Training(max_iter=3)).fit(
            X, y
        ),
        greenfold.IGLClassifier(random_state=0).fit(X, np.where(y > 0, "yes", "no")),
        greenfold.IGLStack(random_state=0).fit(X, y),
        greenfold.IGLAutoencoder(random_state=0, training=Training(max_iter=3)).fit(X),
    ]
    for model in models:
        greenfold.save(model, folder / "m.greenfold")
        again = greenfold.load(folder / "m.greenfold")
        assert (again.predict(X) == model.predict(X)).all()
        if hasattr(model, "predict_interval"):
            low, high = again.predict_interval(X)
            assert (low < high).all()
        if hasattr(model, "report"):
            model.report(folder / "report.html")
        print("  ", type(model).__name__)
    np.save(folder / "rows.npy", np.column_stack([X, y]))
    large = greenfold.IGLRegressor(
        chart="linear", n_dims=1, random_state=0, source=Source(n_atoms=20)
    )
    large.fit_stream(folder / "rows.npy", target=-1, epochs=1).partial_fit(X, y)
    print("   a stream;", greenfold.dimension(X[:40], y[:40], random_state=0).task)


def from_the_command_line(folder, extras):
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    X, y = rows()
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": ["x", "y"] * 40, "y": y})
    when = pa.array(range(80), pa.timestamp("s", "UTC"))
    pa.csv.write_csv(table.append_column("when", when), folder / "d.csv")
    pa.parquet.write_table(table, folder / "d.parquet")
    text = (folder / "d.csv").read_text().replace(",", ";").replace(".", ",")
    (folder / "euro.csv").write_text(text)
    lines = [
        ("--help", "Usage: "),
        ("--version", "greenfold "),
        ("fit --help", "--target"),
        ("fit d.csv -t y -o m.greenfold", "R2"),
        ("fit euro.csv -t c -o c.greenfold --task classification", "accuracy"),
        ("fit d.parquet -t y -o s.greenfold --stream --chart linear --epochs 1", "R2"),
        ("info m.greenfold", "IGLRegressor"),
        ("predict m.greenfold d.csv --std --interval 0.9", "y_low"),
        ("predict c.greenfold euro.csv --proba -o p.parquet", ""),
        ("report m.greenfold d.csv", "page"),
        ("demo --out picture.png", "partial least squares"),
        ("export m.greenfold -o m.pt2", "graph"),
    ]
    if "export" in extras:
        lines.append(("export m.greenfold -o m.onnx", "graph"))
    for line, words in lines:
        done = greenfold_(line, folder)
        assert done.returncode == 0, f"greenfold {line}\n{done.stdout}{done.stderr}"
        assert words in done.stdout, f"greenfold {line}\n{done.stdout}{done.stderr}"
        print("   greenfold", line)
    assert (folder / "picture.png").exists() == ("plots" in extras)
    for line, code in (("predict", 2), ("nonsense", 2), ("info none", 1)):
        done = greenfold_(line, folder)
        assert done.returncode == code, f"greenfold {line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
    if "export" not in extras:
        assert "greenfold[export]" in greenfold_("export m.greenfold -o m.onnx", folder).stderr


def greenfold_(line, folder):
    command = [sys.executable, "-m", "greenfold", *line.split()]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def with_extras(folder, extras):
    import greenfold
    from greenfold.learn.callbacks import TensorBoard

    X, y = rows()
    if "tracking" in extras:
        seen = TensorBoard(folder / "runs")
        greenfold.IGLRegressor(chart="linear", training=Training(max_iter=2, callbacks=[seen])).fit(
            X, y
        )
        assert list((folder / "runs").iterdir())


def main(what, *extras):
    extras = EXTRAS if extras == ("all",) else extras
    if what == "pins":
        print("\n".join(pins(extras)))
        return
    installed(extras)
    warnings.simplefilter("error", DeprecationWarning)
    with tempfile.TemporaryDirectory() as folder:
        from_python(Path(folder))
        from_the_command_line(Path(folder), extras)
        with_extras(Path(folder), extras)
    print("the lowest versions will do:", ", ".join(pins(extras)))


if __name__ == "__main__":
    main(*sys.argv[1:])
