"""scikit-learn estimators: convert, build, train, convert back."""

from greenfold.estimators.autoencoder import IGLAutoencoder
from greenfold.estimators.classifier import IGLClassifier
from greenfold.estimators.learner import Learner
from greenfold.estimators.regressor import IGLRegressor
from greenfold.estimators.stack import IGLStack
from greenfold.estimators.stack_classifier import IGLStackClassifier

__all__ = [
    "IGLAutoencoder",
    "IGLClassifier",
    "IGLRegressor",
    "IGLStack",
    "IGLStackClassifier",
    "Learner",
]
