"""Processes killed at any moment: every run ends, with the bits of the run that was left alone."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from greenfold import IGLRegressor, Source, io

from .worlds import free_port

rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 5)).astype(np.float32)
y = (np.sin(X[:, 0] + X[:, 1]) + 0.05 * rng.normal(size=2000)).astype(np.float32)
OPTIONS = {"epochs": 3, "batch_size": 128, "deterministic": True}
LIMIT = 600  # seconds until a run counts as hanging


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("faults") / "data.npy"
    np.save(path, np.column_stack([X, y]))
    return path


@pytest.fixture(scope="module")
def expected(data):
    """Predictions of a run in this process, left alone."""
    model = IGLRegressor(chart="linear", n_dims=2, random_state=0, source=Source(n_atoms=30))
    return model.fit_stream(data, **OPTIONS).predict(X)


class Run:
    """`greenfold launch -- fit --stream` on its way."""

    def __init__(self, data, folder, nproc, *launch_options):
        self.nproc = nproc
        self.folder, self.out = Path(folder), Path(folder) / "model.greenfold"
        fit = ["fit", data, "--target", "-1", "--stream", "--out", self.out, "--chart", "linear"]
        fit += ["--n-dims", 2, "--set", "n_atoms=30", "--random-state", 0, "--deterministic"]
        fit += ["--epochs", 3, "--batch-size", 128, "--every", 1, "--checkpoint", self.checkpoints]
        options = ["--nproc", nproc, "--max-restarts", 100, *launch_options]
        words = [sys.executable, "-m", "greenfold", "launch", *options, "--", *fit]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in words],
                stdout=log,
                stderr=log,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )

    @property
    def checkpoints(self):
        return self.folder / "checkpoints"

    @property
    def said(self):
        return (self.folder / "log").read_text()

    def workers(self):
        """Process ids, in the order of their ranks; none until all are there."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rsplit(")", 1)[1].split()
                words = (path.parent / "cmdline").read_bytes().split(b"\0")
            except OSError:  # it ended meanwhile
                continue
            if int(fields[1]) == self.process.pid and fields[0] != "Z" and b"fit" in words:
                found.append(int(path.parent.name))
        return sorted(found) if len(found) == self.nproc else []

    def wait(self, condition, pause=0.02):
        """What the condition gives once it holds; None if the run ends before."""
        start = time.monotonic()
        while self.process.poll() is None:
            value = condition()
            if value:
                return value
            assert time.monotonic() - start < LIMIT, self.said
            time.sleep(pause)
        return None

    def files(self):
        return {p.name for p in self.checkpoints.glob("step-*")}

    def kill(self, moment, rank):
        """SIGKILL at a moment: at the start, while a checkpoint is written, or anywhere after one."""
        before = self.files()
        pids = self.wait(self.workers)
        if moment == "start":
            time.sleep(random.uniform(0, 3))
        elif moment == "save":
            rank = 0  # which writes
            self.wait(lambda: list(self.checkpoints.glob(".step-*")), 0.0005)
        else:
            self.wait(lambda: self.files() - before)
            time.sleep(random.uniform(0, 0.05))
        if pids is None or self.process.poll() is not None:
            return False
        try:
            os.kill(pids[rank], signal.SIGKILL)
        except ProcessLookupError:
            return False
        for path in self.checkpoints.glob("step-*"):
            try:
                content = path.read_bytes()
            except FileNotFoundError:  # an old one, removed meanwhile
                continue
            io.read_header(content)  # raises where it is not whole
        self.wait(lambda: not Path(f"/proc/{pids[rank]}").exists())
        return True

    def end(self):
        """The model, once the run has ended."""
        code = self.process.wait(LIMIT)
        assert code == 0, self.said
        return io.load(self.out).estimator


@pytest.mark.slow  # test_streams.py interrupts a fit anywhere, in one process
def test_killed_ranks_change_no_bit(data, expected, tmp_path):
    run = Run(data, tmp_path, 2)
    assert run.kill("save", 0)
    assert_array_equal(run.end().predict(X), expected)
    assert len(run.files()) == 2


@pytest.mark.slow
def test_twenty_kills_of_random_ranks(data, expected, tmp_path):
    random.seed(0)
    kills = {"start": 0, "save": 0, "anywhere": 0}
    for i, nproc in enumerate((2, 2, 3, 4)):
        folder = tmp_path / str(i)
        folder.mkdir()
        run = Run(data, folder, nproc)
        for moment in ("start", "anywhere", "save", "anywhere", "save", "start"):
            kills[moment] += run.kill(moment, random.randrange(nproc))
        assert_array_equal(run.end().predict(X), expected)
    print(kills)
    assert sum(kills.values()) >= 20
    assert min(kills.values()) >= 4


@pytest.mark.slow
def test_a_killed_launcher_takes_its_processes_along(data, expected, tmp_path):
    run = Run(data, tmp_path, 2)
    run.wait(lambda: len(run.files()) == 2)
    pids = run.workers()
    run.process.kill()
    run.process.wait()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "Run the same command again to go on" in run.said
    assert not run.out.exists()
    again = Run(data, tmp_path, 2)
    assert_array_equal(again.end().predict(X), expected)


@pytest.mark.slow
def test_two_machines_meet_and_one_of_them_is_killed(data, expected, tmp_path):
    """Two torchrun agents on this machine, as on two."""
    place = ["--nnodes", 2, "--endpoint", f"127.0.0.1:{free_port()}"]
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    (folders[1] / "checkpoints").symlink_to(folders[0] / "checkpoints")  # a disk they share
    runs = [Run(data, folder, 1, *place) for folder in folders]
    runs[0].wait(lambda: len(runs[0].files()) == 2)
    os.kill(random.choice(runs).workers()[0], signal.SIGKILL)
    for run in runs:
        assert run.process.wait(LIMIT) == 0, run.said
    out = next(run.out for run in runs if run.out.exists())  # of the first rank, wherever it ran
    assert_array_equal(io.load(out).estimator.predict(X), expected)


@pytest.mark.slow
def test_input_that_is_wrong_is_said_and_not_tried_again(tmp_path):
    bad = np.column_stack([X, y])
    bad[-1, 0] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    run = Run(tmp_path / "bad.npy", tmp_path, 2)
    assert run.process.wait(LIMIT) == 1
    assert (
        1 <= run.said.count("NaN or infinity") <= 2
    )  # by each process that came to it, in one try
    assert "would repeat itself" in run.said
