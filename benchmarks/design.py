"""The fused design matrix against plain broadcasting and against the physical floor, in one run.

    Φ_nr = Σ_k γ_k Π_j I_krj(ξ_nj),   forward and backward, float32, one thread, CPU time

Broadcasting forms the (n, k, r, d) tensor of logarithms; the floor is the time of the exponentials and
matrix products that no method can avoid (one exp and one product forward; one more exp and three
products backward). Medians of alternating repetitions; the JSON goes to results/design.json.
"""

import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import torch

from greenfold.green.matrix import exp_quadratic

R, K = 128, 8


def problem(n: int, d: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    xi = torch.rand(n, d, generator=generator).mul_(2).sub_(1)
    mu = torch.rand(R, d, generator=generator).mul_(2).sub_(1)
    s2 = (0.5 + torch.linspace(0, 2, K)[:, None, None]).expand(K, R, d) * d  # (k, r, d) widths²
    gamma = torch.full((K,), 1 / K)
    return xi.requires_grad_(), mu.requires_grad_(), s2.contiguous(), gamma


def fused(
    xi: torch.Tensor, mu: torch.Tensor, s2: torch.Tensor, gamma: torch.Tensor
) -> torch.Tensor:
    mu, s2 = mu.double(), s2.double()
    return exp_quadratic(xi, 1 / s2, mu / s2, -(mu**2) / (2 * s2), gamma.double().log())


def broadcast(
    xi: torch.Tensor, mu: torch.Tensor, s2: torch.Tensor, gamma: torch.Tensor
) -> torch.Tensor:
    delta = xi[:, None, None, :] - mu  # (n, 1, r, d)
    factors = torch.exp(-(delta**2) / (2 * s2))  # (n, k, r, d)
    return (factors.prod(-1) * gamma[:, None]).sum(1)


def step(method, arguments) -> float:
    """CPU seconds of one forward and backward pass."""
    start = time.process_time()
    Phi = method(*arguments)
    Phi.sum().backward()
    elapsed = time.process_time() - start
    for tensor in arguments[:2]:
        tensor.grad = None
    return elapsed


def floor(n: int, d: int) -> float:
    """CPU seconds of 2 exps of n·k·r numbers and 4 products of size (n, 2d + 1, k·r), tile by tile."""
    rows, m = 256, 2 * d + 1
    F, W = torch.randn(rows, m), torch.randn(R * K, m)
    E, F_bar, W_bar = torch.randn(rows, R * K), torch.empty(rows, m), torch.zeros(R * K, m)
    start = time.process_time()
    for _ in range(n // rows):
        torch.mm(F, W.T, out=E).clamp_(-1, 1)  # keep exp away from overflow and denormals
        torch.exp(E, out=E)
        torch.mm(F, W.T, out=E).clamp_(-1, 1)
        torch.exp(E, out=E)
        torch.mm(E, W, out=F_bar)
        W_bar.addmm_(E.T, F)
    return time.process_time() - start


def clamps(n: int) -> float:
    """What the clamps in `floor` cost, to take it off again."""
    E = torch.randn(256, R * K)
    start = time.process_time()
    for _ in range(n // 256):
        E.clamp_(-1, 1)
        E.clamp_(-1, 1)
    return time.process_time() - start


def extra_memory(d: int, n: int = 10_000) -> float:
    """MB that one fused step adds at its peak, Φ and all gradients included, in a fresh process."""
    command = [sys.executable, __file__, "--memory", str(n), str(d)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def memory_probe(n: int, d: int) -> None:
    step(fused, problem(64, d))  # load every library first
    arguments = problem(n, d)
    Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak starts from here
    before = peak_mb()
    step(fused, arguments)
    print(peak_mb() - before)


def peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    torch.set_num_threads(1)
    results = {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "R": R,
        "K": K,
        "cases": [],
    }
    print(
        f"{'d':>4} {'n':>6} {'broadcast':>10} {'fused':>9} {'floor':>9} {'speedup':>8} {'/floor':>7}"
    )
    for d, target in ((10, 15), (64, 40)):
        n = 2048
        arguments = problem(n, d)
        slow, fast, base = [], [], []
        step(fused, arguments)
        for _ in range(5):
            slow.append(step(broadcast, arguments))
            fast += [step(fused, arguments) for _ in range(5)]
            base += [floor(n, d) - clamps(n) for _ in range(5)]
        case = {
            "d": d,
            "n": n,
            "broadcast_ms": 1e3 * median(slow),
            "fused_ms": 1e3 * median(fast),
            "floor_ms": 1e3 * median(base),
            "speedup": median(slow) / median(fast),
            "over_floor": median(fast) / median(base),
        }
        results["cases"].append(case)
        print(
            f"{d:>4} {n:>6} {case['broadcast_ms']:>7.0f} ms {case['fused_ms']:>6.1f} ms "
            f"{case['floor_ms']:>6.1f} ms {case['speedup']:>7.1f}x {case['over_floor']:>6.2f}x  "
            f">= {target}x, <= 2x the floor"
        )
    for d in (10, 64):
        megabytes = extra_memory(d)
        results["cases"].append({"d": d, "n": 10_000, "extra_mb": megabytes})
        print(f"{d:>4}  10000 extra memory {megabytes:.0f} MB  <= 40 MB")
    path = Path("results/design.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=1))
    print(f"written to {path}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        torch.set_num_threads(1)
        memory_probe(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
