"""Docstrings that mypyc leaves out are put into the C that it makes."""

from __future__ import annotations

import pytest

from explain_c import explained

SOURCE = '''"""What a "module" is for?\\nTwo lines."""

class Thing:
    """A thing."""

    def __init__(self, size: int, kind: str = Kind.plain, *, deep: bool = False) -> None:
        self.size = size

    def grow(self, by: int = 1) -> None:
        """Make it larger – by so much."""

    @property
    def width(self) -> int:
        """How wide it is, in metres."""
        return self.size

    def silent(self) -> None:
        pass

    @staticmethod
    def at(x, /, *others, until=ENDLESS, **more) -> None:
        """Where."""


@singledispatch
def told(one: object) -> None:
    """Say it."""
'''
C = r"""
    {"width",
     (getter)here___Thing_get_width,
    NULL, NULL, NULL},
    {"size",
     (getter)here___Thing_get_size, (setter)here___Thing_set_size,
     NULL, NULL},
     (PyCFunction)CPyPy_here___Thing_____init__,
     METH_FASTCALL | METH_KEYWORDS, PyDoc_STR(NULL)},
     (PyCFunction)CPyPy_here___Thing___grow,
     METH_FASTCALL | METH_KEYWORDS, PyDoc_STR("grow($self, by=1)\n--\n\n")},
     (PyCFunction)CPyPy_here___Thing___silent,
     METH_FASTCALL | METH_KEYWORDS, PyDoc_STR("silent($self)\n--\n\n")},
     (PyCFunction)CPyPy_here___Thing___at,
     METH_FASTCALL | METH_KEYWORDS | METH_STATIC, PyDoc_STR(NULL)},
    .tp_name = "Thing",
    .tp_new = here___Thing_new,
    .tp_doc = PyDoc_STR(NULL),
};
    .tp_name = "told_obj",
    .tp_doc = PyDoc_STR("told_obj()\n--\n\n"),
};
    {"other", (PyCFunction)CPyPy_elsewhere___grow, METH_FASTCALL, PyDoc_STR("grow(x)\n--\n\n") /* docstring */},
    PyModuleDef_HEAD_INIT,
    "far.here",
    NULL, /* docstring */
"""


@pytest.mark.parametrize(
    "expected",
    [
        r'"What a \042module\042 is for\077\nTwo lines.", /* docstring */',
        r'NULL, "How wide it is, in metres.", NULL},',
        "here___Thing_set_size,\n     NULL, NULL},",
        r'PyDoc_STR("__init__($self, size, kind=..., *, deep=False)\n--\n\n")',
        r'PyDoc_STR("grow($self, by=1)\n--\n\nMake it larger \342\200\223 by so much.")',
        r'PyDoc_STR("silent($self)\n--\n\n")',
        r'PyDoc_STR("at(x, /, *others, until=..., **more)\n--\n\nWhere.")',
        r'.tp_doc = PyDoc_STR("Thing(size, kind=..., *, deep=False)\n--\n\nA thing.")',
        r'PyDoc_STR("told_obj()\n--\n\nSay it.")',
        r'PyDoc_STR("grow(x)\n--\n\n") /* docstring */',
    ],
)
def test_docstrings_and_signatures_are_put_in(expected: str) -> None:
    """Where mypyc has a signature it stays; defaults that are not plain are ``...``; others' C stays as it is."""
    assert expected in explained(C, SOURCE, "far.here")


def test_twice_is_as_once() -> None:
    """mypyc leaves C that it has made before as it lies there."""
    once = explained(C, SOURCE, "far.here")
    assert explained(once, SOURCE, "far.here") == once


def test_other_c_is_left_alone() -> None:
    """Another mypyc may write it in another way: docstrings are missing then, and nothing else."""
    other = C.replace("PyDoc_STR", "DOC").replace("getter", "get").replace("/* docstring */", "")
    assert explained(other, SOURCE, "far.here") == other
