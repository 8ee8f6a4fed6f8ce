"""Puts docstrings back into the C that mypyc makes, which leaves them out: ``help`` and ``?`` show nothing otherwise.

Of a signature mypyc gives the names and the plain defaults, or nothing at all if one default is not plain: such a
signature is put back too, with ``...`` for those defaults. Where the C looks different (another mypyc), nothing is put.
"""

from __future__ import annotations

import ast
import re
from typing import Final, NamedTuple

_C_STRING: Final = r'NULL|"(?:[^"\\]|\\.)*"'
_MODULE: Final = re.compile(r'(PyModuleDef_HEAD_INIT,\s*"[\w.]+",\s*)NULL(?=, /\* docstring)')
_CLASS: Final = re.compile(rf'(\.tp_name = "(\w+)",[^}}]*?\.tp_doc = PyDoc_STR\()({_C_STRING})(?=\))')
_FUNCTION: Final = re.compile(rf"(\(PyCFunction\)CPyPy_(\w+),\s*METH_[A-Z_ |]*, PyDoc_STR\()({_C_STRING})(?=\))")
_PROPERTY: Final = re.compile(r"(\(getter\)(\w+),\s*(?:NULL|\(setter\)\w+),\s*)NULL(?=, NULL\})")
# What divides the signature from the docstring, for Python's own ``inspect``.
_DIVIDES: Final = "\n--\n\n"
_ENDS: Final = r'\n--\n\n"'  # of a string in C that holds a signature and no docstring

Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Said(NamedTuple):
    doc: str
    signature: str = ""


_NOTHING: Final = _Said("")


def explained(c: str, source: str, module: str) -> str:
    """The C of a module with the docstrings of its source.

    Args:
        c: What mypyc made of the source, whether or not docstrings have been put into it.
        source: The module as it was compiled.
        module: Its dotted name.
    """
    tree = ast.parse(source)
    classes, functions = _read(tree)
    parts = module.split(".")
    # mypyc names a module by as few of its last parts as tell it from the others.
    begins = ["___".join(parts[first:]) + "___" for first in range(len(parts))]
    said = {begin + name: what for name, what in functions.items() for begin in begins}

    def put(found: re.Match[str], what: _Said | None) -> str:
        there = found[3]
        if what is None or not (there == "NULL" or there.endswith(_ENDS)):
            return found[0]
        if there == "NULL":
            text = _in_c((what.signature + _DIVIDES if what.signature else "") + what.doc)
        else:
            text = there[:-1] + _in_c(what.doc)[1:]
        return found[1] + (there if text == '""' else text)

    def put_alone(found: re.Match[str], doc: str) -> str:
        return found[1] + (_in_c(doc) if doc else "NULL")

    c = _MODULE.sub(lambda found: put_alone(found, ast.get_docstring(tree, clean=False) or ""), c)
    c = _CLASS.sub(lambda found: put(found, classes.get(found[2])), c)
    c = _FUNCTION.sub(lambda found: put(found, said.get(found[2])), c)
    return _PROPERTY.sub(lambda found: put_alone(found, said.get(found[2].replace("_get_", "___", 1), _NOTHING).doc), c)


def _read(tree: ast.Module) -> tuple[dict[str, _Said], dict[str, _Said]]:
    """By the names that they have in C."""
    classes, functions = dict[str, _Said](), dict[str, _Said]()
    for one in tree.body:
        if isinstance(one, Function):
            functions[one.name] = _said(one, one.name, "")
            # One with attributes of its own is an object of a class of its own.
            classes[f"{one.name}_obj"] = functions[one.name]
        elif isinstance(one, ast.ClassDef):
            methods = [method for method in one.body if isinstance(method, Function)]
            functions |= {f"{one.name}___{method.name}": _of_method(method) for method in methods}
            made = functions.get(f"{one.name}_____init__", _NOTHING).signature
            classes[one.name] = _Said(_doc(one), re.sub(r"^__init__\(\$self(, )?", f"{one.name}(", made))
    return classes, functions


def _of_method(method: Function) -> _Said:
    decorators = set(map(ast.unparse, method.decorator_list))
    if "staticmethod" in decorators:
        return _said(method, method.name, "")
    return _said(method, method.name, "$")


def _said(one: Function, name: str, bound: str) -> _Said:
    wanted = one.args
    plain = [*wanted.posonlyargs, *wanted.args]
    without = [None] * (len(plain) - len(wanted.defaults))
    shown = [_parameter(arg, default) for arg, default in zip(plain, [*without, *wanted.defaults], strict=True)]
    if wanted.posonlyargs:
        shown.insert(len(wanted.posonlyargs), "/")
    if wanted.vararg:
        shown.append(f"*{wanted.vararg.arg}")
    elif wanted.kwonlyargs:
        shown.append("*")
    shown += [_parameter(arg, default) for arg, default in zip(wanted.kwonlyargs, wanted.kw_defaults, strict=True)]
    if wanted.kwarg:
        shown.append(f"**{wanted.kwarg.arg}")
    return _Said(_doc(one), f"{name}({bound}{', '.join(shown)})")


def _parameter(arg: ast.arg, default: ast.expr | None) -> str:
    if default is None:
        return arg.arg
    try:
        return f"{arg.arg}={ast.literal_eval(default)!r}"
    except ValueError:
        return f"{arg.arg}=..."


def _doc(one: Function | ast.ClassDef) -> str:
    return ast.get_docstring(one, clean=False) or ""


def _in_c(text: str) -> str:
    """A string in C. ``?`` is written as a number because two of them begin a trigraph."""
    return '"' + "".join(_byte(one) for one in text.encode()) + '"'


def _byte(one: int) -> str:
    char = chr(one)
    if char == "\n":
        return "\\n"
    return char if 32 <= one < 127 and char not in '"\\?' else f"\\{one:03o}"
