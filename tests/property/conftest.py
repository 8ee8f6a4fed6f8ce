"""Hypothesis profiles: quick by default, ``HYPOTHESIS_PROFILE=long`` for nights, ``hunt`` for mutations."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

# Scripts are long to draw and long to run; neither says anything about the law under test.
_PATIENT = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile("quick", max_examples=40, deadline=None, suppress_health_check=_PATIENT)
settings.register_profile("long", max_examples=3_000, deadline=None, suppress_health_check=_PATIENT, print_blob=True)
# For broken rules (tests/mutations.py): a failure is enough, its smallest example is of no use.
settings.register_profile(
    "hunt",
    max_examples=80,
    deadline=None,
    suppress_health_check=_PATIENT,
    phases=(Phase.explicit, Phase.generate),
    database=None,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
