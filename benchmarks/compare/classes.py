"""What users would pick instead to predict classes, tuned by log-loss; `methods.py` has numbers.

Classes are 0, 1, …, and every one is among the training rows. Settings that a method offers for good
probabilities are used: SVC has Platt's scaling with pairwise coupling, extra trees add one vote spread
evenly over the classes, RealMLP and TabM stop by log-loss, RealMLP without label smoothing, as its
documentation asks for then.
"""

from typing import Any

import numpy as np
from methods import (
    BOOSTING,
    BOOSTING_FIRST,
    CATBOOST,
    CATBOOST_FIRST,
    CATBOOST_FIXED,
    LIGHTGBM,
    LIGHTGBM_FIRST,
    LIGHTGBM_FIXED,
    NETWORK,
    NETWORK_FIRST,
    RECURSIVE,
    RECURSIVE_FIRST,
    TREES,
    TREES_FIRST,
    Clock,
    Fit,
    Method,
    Recursive,
    as_it_comes,
    tuned,
)
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

# --- scikit-learn

LOGISTIC = {"C": [10.0 ** (k / 2) for k in range(-8, 9)]}


def support_vectors(X: np.ndarray, y: np.ndarray, clock: Clock, seed: int) -> Fit:
    gammas = [float(g) for g in np.logspace(-2.5, 1, 15) / X.shape[1]]
    grid = {"gamma": gammas, "C": [10.0 ** (k / 2) for k in range(-2, 7)]}
    make = lambda **s: SVC(probability=True, random_state=0, **s)  # noqa: E731
    return tuned(make, grid, {"gamma": gammas[8], "C": 1.0})(X, y, clock, seed)


class Trees(ExtraTreesClassifier):
    """With one more vote, spread evenly: no class has probability 0."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        P = super().predict_proba(X)
        return (self.n_estimators * P + 1 / P.shape[1]) / (self.n_estimators + 1)


# --- other packages, imported where they are used


def lightgbm(**settings: Any) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(**LIGHTGBM_FIXED, **settings)


def catboost(**settings: Any) -> Any:
    from catboost import CatBoostClassifier

    return CatBoostClassifier(**CATBOOST_FIXED, **settings)


def ebm(seed: int) -> Any:
    from interpret.glassbox import ExplainableBoostingClassifier

    return ExplainableBoostingClassifier(n_jobs=1, random_state=seed)


class RecursiveClassifier(Recursive):
    metric = "logloss"

    def fit(self, X: np.ndarray, y: np.ndarray) -> "RecursiveClassifier":
        self.classes_ = np.unique(y)
        super().fit(X, y)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        X = X.astype(np.float32)
        return np.mean([np.asarray(m.predict_proba(X)) for m in self.models], 0)


def realmlp(seed: int) -> Any:
    from pytabkit import RealMLP_TD_Classifier

    return RealMLP_TD_Classifier(
        device="cpu",
        n_threads=1,
        random_state=seed,
        val_metric_name="cross_entropy",
        use_ls=False,
    )


def tabm(seed: int) -> Any:
    from pytabkit import TabM_D_Classifier

    return TabM_D_Classifier(
        device="cpu", n_threads=1, random_state=seed, val_metric_name="cross_entropy"
    )


# --- this library


def igl(seed: int) -> Any:
    from greenfold import IGLClassifier

    return IGLClassifier(random_state=seed)


def stack(seed: int) -> Any:
    from greenfold import IGLStackClassifier

    return IGLStackClassifier(random_state=seed)


CLASSIFIERS = {
    "IGLClassifier": Method(as_it_comes(igl), "greenfold", ours=True),
    "IGLStackClassifier": Method(as_it_comes(stack), "greenfold", ours=True),
    "logistic": Method(
        tuned(lambda **s: LogisticRegression(max_iter=1000, **s), LOGISTIC, {"C": 1.0})
    ),
    "SVC": Method(support_vectors),
    "HistGB": Method(
        tuned(
            lambda **s: HistGradientBoostingClassifier(early_stopping=False, random_state=0, **s),
            BOOSTING,
            BOOSTING_FIRST,
        )
    ),
    "ExtraTrees": Method(
        tuned(lambda **s: Trees(n_estimators=200, random_state=0, **s), TREES, TREES_FIRST)
    ),
    "MLP": Method(tuned(lambda **s: MLPClassifier(random_state=0, **s), NETWORK, NETWORK_FIRST)),
    "LightGBM": Method(tuned(lightgbm, LIGHTGBM, LIGHTGBM_FIRST), "lightgbm"),
    "CatBoost": Method(tuned(catboost, CATBOOST, CATBOOST_FIRST), "catboost"),
    "EBM": Method(as_it_comes(ebm), "interpret", few=False),
    "xRFM": Method(tuned(RecursiveClassifier, RECURSIVE, RECURSIVE_FIRST), "xrfm"),
    "RealMLP": Method(as_it_comes(realmlp), "pytabkit"),
    "TabM": Method(as_it_comes(tabm), "pytabkit", full=False, few=False),
}
