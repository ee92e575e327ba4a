"""scikit-learn's own checks, all of them."""

import pytest
from sklearn.utils.estimator_checks import check_estimator

from greenfold import (
    Chart,
    IGLAutoencoder,
    IGLClassifier,
    IGLRegressor,
    IGLStack,
    IGLStackClassifier,
    Source,
    Training,
)

QUICK = [
    IGLRegressor(chart="linear", source=Source(n_atoms=20), training=Training(max_iter=2)),
    IGLClassifier(chart="linear", source=Source(n_atoms=20), training=Training(max_iter=2)),
    IGLAutoencoder(
        chart=Chart("pca", start="pca"), source=Source(n_atoms=20), training=Training(max_iter=3)
    ),
]


def run_all(estimator):
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    bad = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] != "passed"}
    assert not bad
    assert len(results) > 40


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", QUICK, ids=lambda e: type(e).__name__)
def test_every_check_passes_and_none_is_skipped(estimator):
    run_all(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "estimator",
    [IGLRegressor(), IGLClassifier(), IGLAutoencoder(), IGLStack(), IGLStackClassifier()],
    ids=repr,
)
def test_every_check_passes_with_default_settings(estimator):
    run_all(estimator)
