"""scikit-learn estimators: convert, build, train, convert back."""

from greenfold.estimators.autoencoder import IGLAutoencoder
from greenfold.estimators.classifier import IGLClassifier
from greenfold.estimators.regressor import IGLRegressor

__all__ = ["IGLAutoencoder", "IGLClassifier", "IGLRegressor"]
