"""Fit the public package (`pip install intrinsic-green-learning`, Python 3.13 or newer) as it comes.

python public_igl.py ROWS.npz      writes its predictions to ROWS.npy, prints CPU-seconds
"""

import sys
import time
import warnings
from pathlib import Path

import igl
import numpy as np
import torch

torch.set_num_threads(1)
warnings.simplefilter("ignore")
path = Path(sys.argv[1])
rows = np.load(path)
begin = time.process_time()  # imports are not part of a fit
model = igl.IGLRegressor(random_state=int(rows["seed"])).fit(rows["X"], rows["y"])
np.save(path.with_suffix(".npy"), model.predict(rows["X_test"]))
print(time.process_time() - begin)
