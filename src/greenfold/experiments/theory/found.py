"""How many atoms a fit uses: ridge, Group Lasso, and factors ρ learned by evidence."""

from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor
from torch.nn import Identity

from greenfold.design import Design
from greenfold.experiments.claims import Claim
from greenfold.green import Gaussian, ScreenedPoisson
from greenfold.learn.trainer import descend
from greenfold.model import IGL
from greenfold.solve import GroupLasso, Ridge, evidence

f64 = torch.float64


def measure(config: Any) -> dict[str, Any]:
    """Sources hidden among candidates: atoms in use with ridge and with Group Lasso."""
    hidden, side = 5, config.candidates
    generator = torch.Generator().manual_seed(3)
    line = torch.linspace(-1.5, 1.5, side, dtype=f64)
    atoms = Gaussian(torch.cartesian_prod(line, line), 0.25)
    true = torch.randperm(side**2, generator=generator)[:hidden]
    n = config.n_rows
    xi = 4 * torch.rand(2 * n, 2, dtype=f64, generator=generator) - 2
    Phi = ScreenedPoisson(2.0).response(xi, atoms)
    w = torch.zeros(side**2, 1, dtype=f64)
    w[true, 0] = 1 + torch.rand(hidden, dtype=f64, generator=generator)
    u = Phi @ w
    noise = 1e-2 * u.std() * torch.randn(n, 1, dtype=f64, generator=generator)
    design, Y = Design.stack(Phi[:n]), u[:n] + noise
    solvers: dict[str, Any] = {"ridge": Ridge()}
    solvers |= {f"{s:g}": GroupLasso(s) for s in config.strengths}

    def evaluate(active: Tensor) -> dict[str, Any]:
        refit = Ridge().solve(Design.stack(Phi[:n, active]), Y).w  # without the shrinkage
        error = float((Phi[n:, active] @ refit - u[n:]).norm() / u[n:].norm())
        return {"rank": int(active.sum()), "error": error, "kept": int(active[true].sum())}

    found = {}
    for name, solver in solvers.items():
        strengths = solver.solve(design, Y).w[:, 0].abs()
        found[name] = evaluate(strengths > 1e-3 * strengths.max())
    lasso = [v for k, v in found.items() if k != "ridge"]
    best = min(lasso, key=lambda v: v["error"])
    rho = _importance(xi[:n], Y, atoms, config.max_iter)
    important = evaluate(rho > 1e-2 * rho.max())
    return {
        "rank_rho": important["rank"],
        "kept_rho": important["kept"],
        "error_rho": important["error"],
        "hidden": hidden,
        "found": found,
        "rank_ridge": found["ridge"]["rank"],
        "rank_lasso": best["rank"],
        "kept": best["kept"],
        "error_ridge": found["ridge"]["error"],
        "error_lasso": best["error"],
    }


def _importance(xi: Tensor, Y: Tensor, atoms: Gaussian, max_iter: int) -> Tensor:
    """The factors ρ_r of the columns, a softplus each, learned by evidence."""
    model = IGL(Identity(), ScreenedPoisson(2.0), atoms, n_dims=2, importance=True)
    log_alpha = torch.zeros((), dtype=f64, requires_grad=True)
    parameters = [model.raw_rho, log_alpha]
    descend(model, lambda: evidence(model.design(xi), Y, log_alpha), parameters, max_iter=max_iter)
    return model.rho.detach()


def claims(parts: list[dict[str, Any]]) -> list[Claim]:
    def of(key: str) -> list[float]:
        return [float(part[key]) for part in parts]

    return [
        Claim(
            "App. low-rank; loss",
            f"atoms in use for {parts[0]['hidden']} hidden sources: Group Lasso",
            "Group Lasso finds the rank",
            of("rank_lasso"),
            max(of("rank_lasso")) <= 3 * parts[0]["hidden"]
            and min(of("kept")) == parts[0]["hidden"],
            f"All {parts[0]['hidden']} are among them; overlapping neighbors stay too. Without it "
            f"{max(of('rank_ridge')):.0f}; held-out error {max(of('error_lasso')):.0e} against "
            f"{max(of('error_ridge')):.0e}.",
            change="up to neighbors of the true atoms, its strength chosen on held-out rows",
        ),
        Claim(
            "App. model parameters",
            f"atoms with ρ_r above 1% of the largest for {parts[0]['hidden']} hidden sources",
            "softplus gating on ρ_r finds the rank",
            of("rank_rho"),
            max(of("rank_rho")) <= 2 * parts[0]["hidden"]
            and min(of("kept_rho")) == parts[0]["hidden"],
            "Under the training residual ρ only rescales a column that w scales as well; the evidence "
            "charges for every column in use.",
            change="ρ learned by evidence",
        ),
    ]


def draw(axes: list[Axes], part: dict[str, Any]) -> None:
    (panel,) = axes
    found = part["found"]
    path = [v for k, v in found.items() if k != "ridge"]
    panel.semilogy([v["rank"] for v in path], [v["error"] for v in path], "o-", label="Group Lasso")
    panel.semilogy(found["ridge"]["rank"], found["ridge"]["error"], "sC3", label="ridge")
    panel.semilogy(part["rank_rho"], part["error_rho"], "^C2", label="ρ by evidence")
    panel.axvline(part["hidden"], color="gray", ls=":", label="true rank")
    panel.set(title="atoms in use", xlabel="rank found", ylabel="held-out error")
    panel.legend(fontsize=6.5)
