"""The recipe of docs/scaling.md for Ray Train, where ray is installed."""

import numpy as np
import pytest

import greenfold
from greenfold import Source

ray = pytest.importorskip("ray", reason="ray is not installed; it is no dependency")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_recipe_for_ray_train_gives_the_bits_of_one_process(tmp_path):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 5)).astype(np.float32)
    rows[:, -1] = np.sin(rows[:, 0] + rows[:, 1])
    np.save(tmp_path / "rows.npy", rows)
    data, out = str(tmp_path / "rows.npy"), str(tmp_path / "model.greenfold")

    def model():
        estimator = greenfold.IGLRegressor(
            chart="linear", random_state=0, source=Source(n_atoms=20)
        )
        return estimator.fit_stream(data, epochs=1, batch_size=256, deterministic=True)

    def train():
        import ray.train

        fitted = model()
        if ray.train.get_context().get_world_rank() == 0:
            greenfold.save(fitted, out)

    ray.init(num_cpus=4, include_dashboard=False)  # a trainer and two workers
    try:
        TorchTrainer(
            train,
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=str(tmp_path / "ray")),
        ).fit()
    finally:
        ray.shutdown()
    X = rows[:, :-1]
    np.testing.assert_array_equal(greenfold.load(out).predict(X), model().predict(X))
