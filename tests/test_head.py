"""The head: optimal weights in every step, gradients through the solve, many dimensions."""

import copy

import pytest
import torch
from torch import nn

from greenfold import IGLHead


def codes(n=200, d=8, c=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, d, generator=generator)
    y = (z[:, 0] * z[:, 1] > 0).long() + (z[:, 2] > 1).long()
    return z, y.clamp_max(c - 1)


def head(*arguments, **options):
    torch.manual_seed(1)
    return IGLHead(*arguments, **options)


def test_the_weights_are_optimal_for_the_batch():
    """With no memory, w is the ridge solution: the gradient of the penalized residual vanishes."""
    z, y = codes()
    model = head(8, 3, n_atoms=20, decay=0.0)
    model(z, y)
    A, Y = model.columns(z).double(), model._targets(y)
    w = model.w.double().requires_grad_()
    strength = model.alpha * A.square().mean(0)[:-1].mean()
    loss = (A @ w - Y).square().sum() / len(A) + strength * w[:-1].square().sum()
    (gradient,) = torch.autograd.grad(loss, w)
    assert gradient.abs().max() < 1e-5  # w is kept in float32
    assert (A @ w - Y).square().mean() < 0.9 * Y.var()


def test_running_sums_are_averages_of_the_batches():
    z, y = codes(400)
    model = head(8, 3, n_atoms=10, decay=0.5)
    for part in (slice(0, 100), slice(100, 400)):
        model(z[part], y[part])
    A = [model.columns(z[part]).double() for part in (slice(0, 100), slice(100, 400))]
    expected = (0.25 * A[0].T @ A[0] / 100 + 0.5 * A[1].T @ A[1] / 300) / 0.75
    assert torch.allclose(model.gram / model.share, expected)


def test_solve_on_all_rows_does_not_depend_on_the_batches():
    z, y = codes(300)
    a, b = (head(8, 3, n_atoms=10) for _ in range(2))
    a.solve([(z, y)])
    b.solve(list(zip(z.split(70), y.split(70))))
    assert torch.allclose(a.w, b.w, atol=1e-6)


def test_gradients_through_the_solve():
    z, y = codes(30, 3, 2)
    model = head(3, 2, n_atoms=4, decay=0.3).double()
    model(z.double(), y)
    before = copy.deepcopy(model.state_dict())

    def loss(codes):
        model.load_state_dict(before)
        return nn.functional.cross_entropy(model(codes, y), y)

    assert torch.autograd.gradcheck(loss, z.double().requires_grad_())


@pytest.mark.parametrize("d", [64, 512])
def test_hundreds_of_dimensions_do_not_underflow(d):
    z, _ = codes(50, d)
    columns = head(d, 2).columns(z)
    assert columns.isfinite().all()
    assert (columns[:, :128].amax(0) > 1e-12).all()


def test_pruned_gates_are_exact_zeros_and_their_coordinates_do_not_matter():
    z, y = codes()
    model = head(8, 3)
    with torch.no_grad():
        model.raw_gates[3:] = -0.5
    assert model.prune() == 3
    assert (model.gates[3:] == 0).all()
    model(z, y)
    model.eval()
    moved = z.clone()
    moved[:, 3:] += 10
    assert torch.equal(model(z), model(moved))


def test_training_goes_on_after_pruning():
    """√g has no derivative at 0; what reaches the gates of closed coordinates is 0 all the same."""
    z, y = codes()
    model = head(8, 3)
    with torch.no_grad():
        model.raw_gates[3:] = -0.5
    model.prune()
    nn.functional.cross_entropy(model(z, y), y).backward()
    assert (model.raw_gates.grad[3:] == 0).all()
    assert (model.raw_gates.grad[:3] != 0).all()


@pytest.mark.parametrize("mode", ["two-stage", "joint"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_five_lines_of_training(mode, task):
    z, y = codes(256)
    target = y if task == "classification" else torch.sin(2 * z[:, :1])
    torch.manual_seed(0)
    n_outputs = 3 if task == "classification" else 1
    encoder, model = nn.Linear(8, 4), IGLHead(4, n_outputs, task=task, mode=mode)
    optimizer = torch.optim.Adam([*encoder.parameters(), *model.parameters()], lr=0.02)
    loss = nn.functional.cross_entropy if task == "classification" else nn.functional.mse_loss
    losses = []
    for _ in range(60):
        value = loss(model(encoder(z), target), target)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    assert losses[-1] < 0.7 * losses[0]
    model.eval()
    again = IGLHead(4, n_outputs, task=task, mode=mode).eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(encoder(z)), model(encoder(z)))


def test_autocast_leaves_the_solve_in_double():
    z, y = codes()
    model = head(8, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(nn.Linear(8, 8)(z), y)
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "ranking"}, "classification"),
        ({"mode": "both"}, "two-stage"),
        ({"scales": ()}, "positive"),
        ({"decay": 1.0}, "decay"),
        ({"alpha": 0.0}, "alpha"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        IGLHead(4, 2, **options)


def test_bad_calls():
    with pytest.raises(ValueError, match=r"\(n, 4\)"):
        IGLHead(4, 2)(torch.zeros(3, 5))
    with pytest.raises(ValueError, match="needs the targets"):
        IGLHead(4, 2)(torch.zeros(3, 4))
    with pytest.raises(ValueError, match="no rows"):
        IGLHead(4, 2).solve([])


def test_the_loss_is_what_the_solve_minimizes():
    """With the batch alone in the sums and hardly any ridge, no other w has a smaller loss."""
    z, y = codes()
    model = head(8, 3, n_atoms=20, decay=0.0, alpha=1e-9).double()
    best = model.loss(z.double(), y)
    A, Y = model.columns(z.double()), model._targets(y)
    w = model.w + 1e-3 * torch.randn(model.w.shape, dtype=torch.float64)
    assert best < (A @ w - Y).square().sum(1).mean()
    assert torch.allclose(best, (A @ model.w - Y).square().sum(1).mean())
    assert torch.allclose(
        best, (model(z.double(), y) / model.temperature.exp() - Y).square().sum(1).mean()
    )


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # of the compiler
@pytest.mark.parametrize("mode", ["two-stage", "joint"])
def test_compiled_it_does_the_same(mode):
    """The solve is left out of the graph: it decides by numbers how much jitter there must be."""
    z, y = codes()
    plain = head(8, 3, n_atoms=6, mode=mode)
    compiled = torch.compile(copy.deepcopy(plain), backend="eager")
    inputs = [z.clone().requires_grad_() for _ in range(2)]
    for _ in range(2):
        a, b = compiled(inputs[0], y), plain(inputs[1], y)
        assert torch.equal(a, b)
    nn.functional.cross_entropy(a, y).backward()
    nn.functional.cross_entropy(b, y).backward()
    assert torch.allclose(inputs[0].grad, inputs[1].grad)


def test_a_head_that_has_seen_no_rows_says_so():
    """Zeros would look like an answer."""
    z, y = torch.randn(40, 4), torch.randn(40, 2)
    head = IGLHead(4, 2, task="regression").eval()
    with pytest.raises(RuntimeError, match="seen no rows"):
        head(z)
    head.train()(z, y)
    assert bool(head.eval()(z).detach().any())
    other = IGLHead(4, 2, task="regression").eval()
    other.load_state_dict(head.state_dict())
    assert torch.equal(other(z), head(z))
