"""What an IGLHead adds to a training step of Exp. 7's autoencoder: R = 128, 4 scales, 64 dimensions.

    python benchmarks/head.py [--runs 5]

In a run, steps with and without the head take turns and the least CPU time of each counts, so that a busy
machine hardly touches the result; the median of the runs is told.
"""

import argparse
import statistics
import time

import torch

from greenfold.experiments.exp7.networks import Autoencoder, rebuilt_loss

TARGET = 0.08


def stepper(method, x, y):
    torch.manual_seed(0)
    model = Autoencoder(method, 28, 64, 10, 128)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step():
        if model.head is None:
            loss = rebuilt_loss(model.decoder(model(x)[0]), x)
        else:
            loss = sum(model.losses(x, y, 0.1)) + 0.01 * model.head.gate_norm()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def cpu(step):
    start = time.process_time()
    step()
    return time.process_time() - start


def least(steps, rounds=40):
    """CPU seconds of each."""
    times = [[cpu(step) for step in steps] for _ in range(rounds)]
    return [min(column) for column in zip(*times)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(128, 1, 28, 28, generator=generator)
    y = torch.randint(10, (128,), generator=generator)
    methods = ("AE", "AE+IGL two-stage", "AE+IGL joint")
    steps = [stepper(method, x, y) for method in methods]
    found = [least(steps) for _ in range(runs)]
    print(f"{'':20}{'CPU ms per step':>16}{'added':>9}   target")
    for i, method in enumerate(methods):
        ms = 1e3 * statistics.median(run[i] for run in found)
        added = statistics.median(run[i] / run[0] for run in found) - 1
        verdict = f"   ≤ {TARGET:.0%}: {'met' if added <= TARGET else 'missed'}" if i else ""
        print(f"{method:20}{ms:16.1f}{added:9.1%}{verdict}")


if __name__ == "__main__":
    main()
