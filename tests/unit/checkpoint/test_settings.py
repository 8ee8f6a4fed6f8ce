"""Settings of libraries hold in the next process, before anything is loaded that depends on them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.unit.checkpoint.two_processes import TwoProcesses

# library: (cell, what must hold)
SETTINGS = {
    "warnings": (
        "import warnings; warnings.filterwarnings('error', 'so .* bad', RuntimeWarning, 'here')",
        "import warnings; f = warnings.filters[0]; assert f[0] == 'error' and f[1].pattern == 'so .* bad' and f[2] is RuntimeWarning",
    ),
    "numpy": (
        "import numpy as np; np.set_printoptions(precision=2, suppress=True); np.seterr(divide='raise')",
        "assert str(np.array([1.23456])) == '[1.23]' and np.geterr()['divide'] == 'raise'",
    ),
    "jax": (
        "import jax; jax.config.update('jax_enable_x64', True); x = jax.numpy.ones(3, 'f8')",
        "assert x.dtype == 'float64' and jax.numpy.ones(1).dtype == 'float64'",
    ),
    "torch": (
        "import torch; torch.set_default_dtype(torch.float64); torch.use_deterministic_algorithms(True); "
        "torch.set_grad_enabled(False); torch.backends.cudnn.benchmark = True",
        "assert torch.ones(1).dtype is torch.float64 and torch.are_deterministic_algorithms_enabled() "
        "and not torch.is_grad_enabled() and torch.backends.cudnn.benchmark",
    ),
    "pandas": (
        "import pandas as pd; pd.set_option('display.max_rows', 7); pd.options.display.float_format = None",
        "assert pd.get_option('display.max_rows') == 7",
    ),
    "matplotlib": (
        "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt; plt.rcParams['figure.figsize'] = (3, 2); plt.rcParams['lines.linewidth'] = 7",
        "assert list(plt.rcParams['figure.figsize']) == [3, 2] and plt.rcParams['lines.linewidth'] == 7",
    ),
}


@pytest.mark.parametrize("library", SETTINGS)
def test_a_setting_holds_after_the_move(library: str, tmp_path: Path) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    place = TwoProcesses(tmp_path / "place")
    cell, check = SETTINGS[library]
    place.save(cell)
    back = place.restore({library: check})
    assert back["answers"] == {library: "ok"}
    assert back["warnings"] == []
