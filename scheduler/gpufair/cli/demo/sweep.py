"""Ria's batch job in the demo: a small search for the best regularisation, for a given number of seconds.

Usage: python sweep.py SECONDS
"""

from __future__ import annotations

import os
import sys
import time


def main(seconds: float) -> None:
    """Cross-validate one value after another until the time is up; print the best."""
    os.nice(10)  # the demo shares two cores with two Jupyter servers
    end = time.monotonic() + seconds
    from sklearn.datasets import load_digits
    from sklearn.linear_model import RidgeClassifier
    from sklearn.model_selection import cross_val_score

    digits = load_digits()
    found: dict[float, float] = {}
    alpha = 0.01
    while time.monotonic() < end:
        found[alpha] = float(cross_val_score(RidgeClassifier(alpha=alpha), digits.data, digits.target, cv=3).mean())
        alpha *= 1.5
        time.sleep(0.2)
    best = max(found, key=found.__getitem__)
    print(
        f"tried {len(found)} values on {os.environ.get('GPUFAIR_NODE')}; best alpha {best:.3g}, accuracy {found[best]:.4f}"
    )


if __name__ == "__main__":
    main(float(sys.argv[1]))
