"""Settings of libraries that a notebook changes at its top, and on which its results or their looks depend.

Kept as plain values outside the pickles, because they must hold before objects are loaded: without ``jax_enable_x64``
each double would come back single.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

_PLAIN = (bool, int, float, str, type(None))
Settings = dict[str, dict[str, Any]]  # library -> name -> value, all of it fit for JSON

_TORCH_FLAGS = (
    *("backends.cudnn.deterministic", "backends.cudnn.benchmark", "backends.cudnn.allow_tf32"),
    "backends.cuda.matmul.allow_tf32",
)
_JAX_OPTIONS = (
    *("jax_enable_x64", "jax_default_matmul_precision", "jax_debug_nans", "jax_numpy_dtype_promotion"),
    *("jax_default_prng_impl", "jax_threefry_partitionable", "jax_disable_jit"),
)


def _torch(torch: Any) -> dict[str, Any]:
    return {
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "grad": torch.is_grad_enabled(),
        **{flag: _resolved(torch, flag) for flag in _TORCH_FLAGS},
    }


def _set_torch(torch: Any, was: dict[str, Any]) -> None:
    torch.set_default_dtype(getattr(torch, was["default_dtype"]))
    torch.use_deterministic_algorithms(was["deterministic"], warn_only=was["deterministic_warn_only"])
    torch.set_float32_matmul_precision(was["matmul_precision"])
    torch.set_grad_enabled(was["grad"])
    for flag in _TORCH_FLAGS:
        owner, _, name = flag.rpartition(".")
        if _resolved(torch, flag) != was[flag]:
            setattr(_resolved(torch, owner), name, was[flag])


def _resolved(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name)
    return root


def _jax(jax: Any) -> dict[str, Any]:
    values = {name: getattr(jax.config, name, None) for name in _JAX_OPTIONS}
    return {name: value for name, value in values.items() if value is not None}


def _set_jax(jax: Any, was: dict[str, Any]) -> None:
    for name, value in was.items():
        if getattr(jax.config, name, value) != value:
            jax.config.update(name, value)


def _numpy(numpy: Any) -> dict[str, Any]:
    return {"print": _plain(numpy.get_printoptions()), "errors": numpy.geterr()}


def _set_numpy(numpy: Any, was: dict[str, Any]) -> None:
    numpy.set_printoptions(**was["print"])
    numpy.seterr(**was["errors"])


def _pandas(pandas: Any) -> dict[str, Any]:
    registered = sys.modules["pandas._config.config"]._registered_options  # noqa: SLF001 - there is no public list
    values = {name: pandas.get_option(name) for name in registered}
    return {name: value for name, value in _plain(values).items() if value != registered[name].defval}


def _set_pandas(pandas: Any, was: dict[str, Any]) -> None:
    for name, value in was.items():
        pandas.set_option(name, value)


def _matplotlib(matplotlib: Any) -> dict[str, Any]:
    # As a plain dict: to look at the backend otherwise would choose one, and each look at another asks for its validity.
    default = dict(dict.items(matplotlib.rcParamsDefault))
    values = {name: value for name, value in dict.items(matplotlib.rcParams) if not name.startswith("backend")}
    return _plain({name: value for name, value in values.items() if value != default[name]})


def _set_matplotlib(matplotlib: Any, was: dict[str, Any]) -> None:
    matplotlib.rcParams.update(was)


def _warnings(_: Any) -> dict[str, Any]:
    now: list[Any] = list(warnings.filters)
    filters = (
        [action, _pattern(text), f"{kind.__module__}:{kind.__qualname__}", _pattern(place), line]
        for action, text, kind, place, line in now
    )
    return {"filters": [entry for entry in filters if not str(entry[2]).startswith("__main__:")]}


def _pattern(compiled: Any) -> str:
    return "" if compiled is None else str(getattr(compiled, "pattern", compiled))


def _set_warnings(_: Any, was: dict[str, Any]) -> None:
    now = _warnings(None)["filters"]
    for action, text, kind, place, line in reversed(was["filters"]):
        if [action, text, kind, place, line] not in now:
            module, _, name = kind.partition(":")
            warnings.filterwarnings(action, text, _resolved(import_module(module), name), place, line)


_LIBRARIES: dict[str, tuple[Callable[[Any], dict[str, Any]], Callable[[Any, dict[str, Any]], None]]] = {
    "warnings": (_warnings, _set_warnings),
    "numpy": (_numpy, _set_numpy),
    "torch": (_torch, _set_torch),
    "jax": (_jax, _set_jax),
    "pandas": (_pandas, _set_pandas),
    "matplotlib": (_matplotlib, _set_matplotlib),
}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if type(value) in _PLAIN or (type(value) in (list, tuple) and all(type(item) in _PLAIN for item in value))
    }


def current() -> Settings:
    """The settings of the libraries that this process uses."""
    found = {"warnings": _warnings(None)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of options that are going away
        for name, (read, _) in _LIBRARIES.items():
            with suppress(Exception):  # half imported, or of a version that has them elsewhere
                found.setdefault(name, read(sys.modules[name]))
    return found


def enter(saved: Settings) -> list[str]:
    """Make ``saved`` hold here.

    Returns: Warnings: settings of a library as a whole that were not taken over.
    """
    said = []
    for name, (_, write) in _LIBRARIES.items():
        if name in saved:
            try:
                write(import_module(name), saved[name])
            except ModuleNotFoundError:
                continue  # objects that need it are named
            except Exception as err:  # noqa: BLE001 - any library's own
                said.append(f"the settings of {name} were not all restored ({type(err).__name__}: {err})")
    return said
