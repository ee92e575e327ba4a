"""What an IGLHead adds to a training step of Exp. 7's autoencoder: R = 128, 4 scales, 64 dimensions.

    python benchmarks/head.py [--rounds 15]

Steps with and without the head are timed in turns, so that a busy machine disturbs both alike.
"""

import argparse
import statistics
import time

import torch

from greenfold.experiments.exp7.networks import Autoencoder, rebuilt_loss

TARGET = 0.10


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


def cpu(step, n=10):
    start = time.process_time()
    for _ in range(n):
        step()
    return (time.process_time() - start) / n


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(128, 1, 28, 28, generator=generator)
    y = torch.randint(10, (128,), generator=generator)
    steps = {method: stepper(method, x, y) for method in ("AE", "AE+IGL two-stage", "AE+IGL joint")}
    for step in steps.values():
        cpu(step, 3)
    times = {method: [] for method in steps}
    for _ in range(rounds):
        for method, step in steps.items():
            times[method].append(cpu(step))
    plain = times["AE"]
    print(f"{'':20}{'CPU ms per step':>16}{'added':>9}   target")
    for method, found in times.items():
        added = statistics.median(a / b for a, b in zip(found, plain)) - 1
        mark = (
            "" if method == "AE" else f"   ≤ {TARGET:.0%}: {'met' if added <= TARGET else 'missed'}"
        )
        print(f"{method:20}{1e3 * statistics.median(found):16.1f}{added:9.1%}{mark}")


if __name__ == "__main__":
    main()
