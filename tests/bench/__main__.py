"""Runs the measurements: ``python -m tests.bench``, with ``CASE=prefix`` and ``BENCH_JSON=FILE``.

Exits 1 when a case is over its limit, raises, or when no case fits the prefix.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.bench.result import Result

HERE = Path(__file__).parent
Case = Callable[[], Result]


def discover() -> dict[str, Case]:
    """All cases by name, sorted; two modules must not use one name."""
    cases: dict[str, Case] = {}
    for info in pkgutil.iter_modules([str(HERE)]):
        if info.name.startswith("_"):
            continue
        found: dict[str, Case] = getattr(importlib.import_module(f"tests.bench.{info.name}"), "CASES", {})
        for name, case in found.items():
            if name in cases:
                raise ValueError(f"two bench cases are called {name!r}; the second is in {info.name}.py")
            cases[name] = case
    return dict(sorted(cases.items()))


def measure(cases: dict[str, Case]) -> dict[str, dict[str, object]]:
    """Run each case once. One that raises counts as not ok and stops no other."""
    figures: dict[str, dict[str, object]] = {}
    for name, case in cases.items():
        begun = time.perf_counter()
        try:
            result = case()
        except Exception as err:
            traceback.print_exc()
            figures[name] = {"value": None, "unit": "", "limit": None, "ok": False, "error": f"{type(err).__name__}: {err}"}
            line = "raised"
        else:
            figures[name] = result.as_dict()
            line = str(result)
        print(f"{name:<40} {line}   [{time.perf_counter() - begun:.1f} s]", flush=True)
    return figures


def main() -> int:
    prefix = os.environ.get("CASE", "")
    cases = {name: case for name, case in discover().items() if name.startswith(prefix)}
    if not cases:
        print(f"no bench case begins with {prefix!r}", file=sys.stderr)
        return 1
    figures = measure(cases)
    if target := os.environ.get("BENCH_JSON"):
        Path(target).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    missed = [name for name, figure in figures.items() if not figure["ok"]]
    if missed:
        print(f"over the limit: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
