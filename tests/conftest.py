"""Before anything imports scipy: scikit-learn's array checks are skipped without this."""

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")
