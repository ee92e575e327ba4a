"""The head: optimal weights in every step, gradients through the solve, many dimensions."""

import copy
import socket

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

from greenfold import IGLHead, green
from greenfold import head as head_module
from greenfold.design import Design
from greenfold.green import matrix, quick
from greenfold.solve import Logistic


def codes(n=200, d=8, c=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, d, generator=generator)
    y = (z[:, 0] * z[:, 1] > 0).long() + (z[:, 2] > 1).long()
    return z, y.clamp_max(c - 1)


def head(*arguments, **options):
    torch.manual_seed(1)
    return IGLHead(*arguments, **options)


def explicit(model, z, scales=(0.25, 0.5, 1.0, 2.0), reference=12.0):
    """The columns of Gaussians at several lengths, the gated codes and 1, written out."""
    z, g = z.double(), model.gates.detach().double()
    gaps = z[:, None] - model.atoms.mu.detach().double()  # (n, R, d)
    d2 = (g * gaps.square()).sum(2)
    shares = model.operator.gamma.detach().softmax(0)
    Phi = sum(c * torch.exp(-d2 / (2 * reference * s**2)) for c, s in zip(shares, scales))
    return torch.cat([Phi, z * g.sqrt(), torch.ones(len(z), 1)], 1)


@pytest.mark.parametrize("d", [8, 64])
def test_the_default_is_the_formula_for_several_lengths(d):
    """Columns, weights on running sums and loss, against a ridge written out."""
    z, y = codes(200, d)
    model = head(d, 3, atoms=20)
    with torch.no_grad():
        model.raw_gates.copy_(torch.linspace(-0.2, 0.3, d))
        model.operator.gamma.copy_(torch.tensor([0.4, -1.0, 0.3, 0.2]))
    A = explicit(model, z)
    assert (model.design(z).Phi - A).abs().max() < 1e-6
    Y = (3 * nn.functional.one_hot(y, 3).double() - 1) / 2
    gram = cross = 0.0
    for part in (slice(0, 100), slice(100, 200)):
        gram = 0.9 * gram + 0.1 * A[part].T @ A[part] / 100
        cross = 0.9 * cross + 0.1 * A[part].T @ Y[part] / 100
        loss = model.loss(z[part], y[part])
    ridge = torch.full((len(gram),), 0.02 * float(gram.diagonal()[:-1].mean()), dtype=A.dtype)
    ridge[-1] *= 1e-9
    w = torch.linalg.solve(gram + ridge.diag(), cross)
    assert (A @ (model.w.double() - w)).abs().max() < 1e-5  # w is kept in float32
    expected = (A[100:] @ w - Y[100:]).square().sum(1).mean()
    assert float(loss.detach()) == pytest.approx(float(expected), abs=1e-6)


def test_the_weights_are_optimal_for_the_batch():
    """With no memory, w is the ridge solution: the gradient of the penalized residual vanishes."""
    z, y = codes()
    model = head(8, 3, atoms=20, decay=0.0)
    model(z, y)
    A, Y = model.design(z).Phi.double(), model._targets(y)
    w = model.w.double().requires_grad_()
    strength = model.running.alpha * A.square().mean(0)[:-1].mean()
    loss = (A @ w - Y).square().sum() / len(A) + strength * w[:-1].square().sum()
    (gradient,) = torch.autograd.grad(loss, w)
    assert gradient.abs().max() < 1e-5  # w is kept in float32
    assert (A @ w - Y).square().mean() < 0.9 * Y.var()


def test_running_sums_are_averages_of_the_batches():
    z, y = codes(400)
    model = head(8, 3, atoms=10, decay=0.5)
    for part in (slice(0, 100), slice(100, 400)):
        model(z[part], y[part])
    A = [model.design(z[part]).Phi.double() for part in (slice(0, 100), slice(100, 400))]
    expected = 0.25 * A[0].T @ A[0] / 100 + 0.5 * A[1].T @ A[1] / 300
    assert torch.allclose(model.running.gram, expected)


def test_solve_on_all_rows_does_not_depend_on_the_batches():
    z, y = codes(300)
    a, b = (head(8, 3, atoms=10) for _ in range(2))
    a.solve([(z, y)])
    b.solve(list(zip(z.split(70), y.split(70))))
    assert torch.allclose(a.w, b.w, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss": "cross-entropy"},
        {"loss": "cross-entropy", "n_steps": 2},
        {"operator": green.Heat(2.0, learn=True)},
        {"operator": "poisson"},
    ],
    ids=str,
)
def test_gradients_through_the_solve(options):
    z, y = codes(30, 3, 3)
    model = head(3, 3, atoms=4, decay=0.3, **options).double()
    model(z.double(), y)
    moving = [model.w, *model.running.buffers()]
    before = [buffer.clone() for buffer in moving]

    def loss(codes):
        for buffer, value in zip(moving, before, strict=True):
            buffer.copy_(value)
        return nn.functional.cross_entropy(model(codes, y), y)

    assert torch.autograd.gradcheck(loss, z.double().requires_grad_())


@pytest.mark.parametrize("d", [64, 512])
def test_hundreds_of_dimensions_do_not_underflow(d):
    z, _ = codes(50, d)
    columns = head(d, 2).design(z).Phi
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
        ({"operator": "bogus"}, "operator"),
        ({"atoms": green.Point(torch.zeros(3, 5))}, "5 dimensions"),
        ({"loss": "cross-entropy", "task": "regression"}, "classification"),
        ({"n_steps": 2}, "cross-entropy"),
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
    model = head(8, 3, atoms=20, decay=0.0, alpha=1e-9).double()
    best = model.loss(z.double(), y)
    A, Y = model.design(z.double()).Phi, model._targets(y)
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
    plain = head(8, 3, atoms=6, mode=mode)
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


def test_newton_steps_converge_to_the_least_cross_entropy():
    """With the batch alone in the sums, steps from the last w go where Newton's method ends."""
    z, y = codes()
    model = head(8, 3, atoms=10, decay=0.0, alpha=0.05, loss="cross-entropy").double()
    for _ in range(250):
        model.loss(z.double(), y)
    with torch.no_grad():
        A, penalty = model.design(z.double())
    Y = nn.functional.one_hot(y, 3).double()
    best = Logistic(0.05).solve(Design(A, penalty), Y).w
    assert (A @ (model.w - best)).abs().max() < 1e-5
    model.solve([(z[:90].double(), y[:90]), (z[90:].double(), y[90:])])
    assert (A @ (model.w - best)).abs().max() < 1e-6
    model.loss(z.double(), y)  # one more step from there stays
    assert (A @ (model.w - best)).abs().max() < 1e-6


def test_two_newton_steps_get_closer_than_one():
    z, y = codes()
    one, two = (head(8, 3, atoms=10, loss="cross-entropy", n_steps=k).double() for k in (1, 2))
    assert two.loss(z.double(), y) < one.loss(z.double(), y)


OPERATORS = {
    "heat": lambda: green.Heat(2.0, learn=True),
    "screened": lambda: green.ScreenedPoisson(0.5),
    "poisson": lambda: green.Poisson(),  # has a null space
    "matern": lambda: green.Matern(2.5, 3.0),
    "cauchy": lambda: green.Cauchy(3.0),
    "product": lambda: green.ProductScreened(0.3),
    "mixed": lambda: green.Superposition([green.Matern(1.5, 3.0), green.Cauchy(3.0)]),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_any_operator_may_be_behind_it(name):
    """It learns, its closed gates matter to nothing, and its state can be loaded."""
    z, y = codes()
    torch.manual_seed(0)
    model, encoder = IGLHead(8, 3, operator=OPERATORS[name](), atoms=20), nn.Linear(8, 8)
    optimizer = torch.optim.Adam([*encoder.parameters(), *model.parameters()], lr=0.02)
    losses = []
    for _ in range(30):
        value = model.loss(encoder(z), y)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    assert losses[-1] < 0.8 * losses[0]
    with torch.no_grad():
        model.raw_gates[3:] = -0.5
    model.prune()
    model.solve([(z, y)])
    model.eval()
    other = IGLHead(8, 3, operator=OPERATORS[name](), atoms=20).eval()
    other.load_state_dict(model.state_dict())
    moved = torch.cat([z[:, :3], z[:, 3:] + 1], 1)
    assert torch.allclose(other(moved), model(z), atol=1e-5)


def test_sources_of_your_own():
    z, y = codes()
    atoms = green.Gaussian(z[:12], 2.0)
    model = head(8, 3, operator=green.Heat(1.0), atoms=atoms)
    model(z, y)
    expected = green.Heat(1.0).response(z, atoms, model.gates)
    assert torch.allclose(model.design(z).Phi[:, :12], float(model.unit) * expected)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_sequences_are_rows_in_another_shape(task):
    z, y = codes(60)
    target = y if task == "classification" else z[:, :3].sin()
    flat, folded = (head(8, 3, atoms=10, task=task) for _ in range(2))
    a = flat(z, target)
    b = folded(z.reshape(12, 5, 8), target.reshape(12, 5, *target.shape[1:]))
    assert b.shape == (12, 5, 3)
    assert torch.equal(a, b.reshape(60, 3))
    pair = z.reshape(12, 5, 8), target.reshape(12, 5, *target.shape[1:])
    assert torch.equal(flat.loss(z, target), folded.loss(*pair))
    folded.solve([pair])
    assert folded.eval()(z.reshape(12, 5, 8)).shape == (12, 5, 3)


def test_half_precision_is_for_the_network():
    """Cast with it, the head keeps float32 parameters and float64 sums, and answers in float32."""
    z, y = codes()
    model, plain = (head(8, 3, atoms=20) for _ in range(2))
    network = nn.Sequential(nn.Linear(8, 8), model).to(torch.bfloat16)
    assert network[0].weight.dtype == torch.bfloat16
    assert {p.dtype for p in (model.atoms.mu, model.raw_gates, model.w)} == {torch.float32}
    assert model.running.gram.dtype == torch.float64
    h = network[0](z.bfloat16())
    u = model(h, y)
    assert u.dtype == torch.float32
    assert torch.equal(u, plain(h.float(), y))
    nn.functional.cross_entropy(u, y).backward()
    assert network[0].weight.grad.dtype == torch.bfloat16


class NoDoubles(TorchFunctionMode):
    """As a device that has no float64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.dtype == torch.float64:
            raise TypeError(f"{function} made a float64 tensor")
        return result


@pytest.mark.parametrize(
    "options", [{}, {"loss": "cross-entropy"}, {"operator": green.Heat(2.0)}], ids=str
)
def test_devices_without_float64(options, monkeypatch):
    """The same in float32, to its digits; nothing wider is made."""
    z, y = codes()
    usual, model = (head(8, 3, atoms=20, **copy.deepcopy(options)) for _ in range(2))
    for module in (head_module, matrix, quick, green.base):
        monkeypatch.setattr(module, "widest", lambda device: torch.float32)
    model.to("cpu")
    assert {p.dtype for p in model.state_dict().values()} == {torch.float32}
    with NoDoubles():
        value = model.loss(z.requires_grad_(), y)
        value.backward()
        if model.minimizes == "residual":
            model.solve([(z.detach(), y)])
    monkeypatch.undo()
    assert float(value.detach()) == pytest.approx(float(usual.loss(z, y).detach()), rel=1e-4)


def test_calibrated_probabilities_have_the_least_log_loss():
    z, y = codes(400)
    model = head(8, 3, atoms=20)
    model.solve([(z[:200], y[:200])])
    model.eval()
    factor = model.calibrate([(z[200:], y[200:])])
    least = nn.functional.cross_entropy(model(z[200:]), y[200:])
    for other in (0.9, 1.1):
        with torch.no_grad():
            model.temperature.fill_(torch.tensor(factor * other).log())
        assert nn.functional.cross_entropy(model(z[200:]), y[200:]) > least
    with pytest.raises(ValueError, match="temperature"):
        IGLHead(4, 2, task="regression").calibrate([])


class Step(nn.Module):
    """Encoder and head, whose forward pass is the loss."""

    def __init__(self, loss):
        super().__init__()
        torch.manual_seed(3)
        self.encoder = nn.Linear(8, 6)
        self.head = IGLHead(6, 3, atoms=10, loss=loss)

    def forward(self, z, y):
        return self.head.loss(self.encoder(z), y) + 0.01 * self.head.gate_norm()


def trained(model, z, y):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for part in range(4):
        optimizer.zero_grad()
        model(z[part::4], y[part::4]).backward()
        optimizer.step()


LOSSES = ("residual", "cross-entropy")


def process(rank, port, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    z, y = codes()
    own = torch.arange(200) // 4 % 2 == rank  # half the rows of every batch
    for loss in LOSSES:
        model = Step(loss).double()
        trained(DistributedDataParallel(model), z[own].double(), y[own])
        torch.save(model.state_dict(), f"{folder}/{loss}-{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_learn_what_one_does(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(process, (port, str(tmp_path)), nprocs=2)
    z, y = codes()
    for loss in LOSSES:
        alone, start = Step(loss).double(), Step(loss).double()
        trained(alone, z.double(), y)
        for rank in range(2):
            state = torch.load(tmp_path / f"{loss}-{rank}.pt")
            for name, value in alone.state_dict().items():
                assert torch.allclose(state[name], value, atol=1e-6), name
        assert not torch.allclose(start.encoder.weight, alone.encoder.weight, atol=1e-3)
