"""What of a notebook travels to the CPU pool, and when a pool is refused. No pool is needed here."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path

import pytest

from gpufair.cpu import cell, worker
from gpufair.cpu.environment import compare
from gpufair.cpu.errors import Unpicklable, WrongEnvironment
from gpufair.cpu.parcel import pack


def test_a_cell_reads_what_its_functions_read_and_assigns_what_it_names() -> None:
    """Else a variable would be missing on the worker, or would not come back."""
    found = cell.names("import os as o\ndef f(a):\n    global g\n    g = a + b\n    local = c\nclass K:\n    inside = d\n[i for i in e]\ndel h")
    assert set("bcdeh") <= set(found.read)
    assert found.assigned == ("K", "f", "g", "h", "o")


def test_another_python_or_dask_is_refused_and_another_numpy_is_told() -> None:
    """Bytecode of another minor version crashes a worker, or runs wrongly."""
    here = {"Python": "CPython 3.11", "distributed": "2026.8.0", "numpy": "2.4.6", "pandas": "2.3"}
    assert compare(here, here) == ([], [])
    assert compare(here, here | {"distributed": "2026.8.1", "torch": "2.13"}) == ([], [])
    refused, told = compare(here, {"Python": "CPython 3.12", "distributed": "2026.9.0", "numpy": "1.26.4"})
    assert refused == [
        "Python is CPython 3.11 in this notebook and CPython 3.12 on a worker",
        "distributed is 2026.8.0 in this notebook and 2026.9.0 on a worker",
    ]
    assert told == ["numpy is 2.4.6 in this notebook and 1.26.4 on a worker"]


def test_a_worker_of_another_python_opens_nothing() -> None:
    """One may join after the notebook connected."""
    outcome = worker.run(pack({"function": print}), "ticket", "CPython 2.7")
    with pytest.raises(WrongEnvironment, match=r"CPython 2\.7"):
        worker.opened(outcome)


def test_what_cannot_travel_is_named_with_its_place() -> None:
    """Dask's own error names neither the variable nor the lock in it."""
    with pytest.raises(Unpicklable, match=r"settings cannot travel .* holds a lock \(settings\['guard'\]\)"):
        pack({"fine": 1, "settings": {"guard": threading.Lock()}})


def test_a_notebooks_functions_share_their_namespace_again() -> None:
    """A helper must see what the cell assigned, on the worker as in the notebook."""
    there: dict[str, object] = {}
    here: dict[str, object] = {"__name__": "__main__"}
    exec("rate = 2\ndef price(n):\n    return n * rate", here)
    opened = pack({"price": here["price"]}, here).open(there)
    assert (opened["price"](3), there["rate"]) == (6, 2)
    there["rate"] = 5
    assert opened["price"](3) == 15


def test_a_module_beside_the_notebook_travels_by_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker does not have it, or has an older one."""
    (tmp_path / "beside_the_notebook.py").write_text("def answer():\n    return 41\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("beside_the_notebook")
    monkeypatch.delitem(__import__("sys").modules, "beside_the_notebook", raising=False)
    assert b"beside_the_notebook" not in pack({"json": __import__("json").dumps}).head
    with monkeypatch.context() as loaded:
        loaded.setitem(__import__("sys").modules, "beside_the_notebook", module)
        parcel = pack({"answer": module.answer})
    (tmp_path / "beside_the_notebook.py").unlink()
    assert parcel.open()["answer"]() == 41
