"""Writes out, for the compiler, the constructors of data classes, and what else is lost on the way.

What ``dataclass`` makes is made when a module is imported, so it is interpreted although the class is compiled: one
event or one decision then takes eight times as long to make as it need. Of an annotation mypyc keeps only the outermost
class, and enumerations get a docstring of its own. Of the sources only the copy that is compiled is changed, and no
line of it gets another number.
"""

from __future__ import annotations

import ast
from typing import Final

# As of Python's own ``dataclass``.
_DECORATOR: Final = "dataclass"
# A copy is made by the constructor: mypyc's classes with one of their own cannot be made empty and filled later, and
# those that are frozen cannot be filled at all.
_REDUCE: Final = "    def __reduce__(self) -> tuple[type, tuple[object, ...]]: return {name}, ({values},)"

# Put at the end. Types of ``NewType`` learn there where they are from: they ask who calls, which compiled code can't say.
_PUT_BACK: Final = """

def _put_back(annotated: dict[type, dict[str, str]], explained: dict[type, str], new_types: tuple[str, ...]) -> None:
    for one, annotations in annotated.items():
        setattr(one, "__annotations__", annotations)
        fields = getattr(one, "__dataclass_fields__", None)
        if fields is not None:
            made = getattr(vars(one).get("__init__"), "__annotations__", None)
            for name, field in fields.items():
                field.type = annotations.get(name, field.type)
                if made is not None:
                    made[name] = field.type
    for one, doc in explained.items():
        setattr(one, "__doc__", doc)
    for name in new_types:
        setattr(globals()[name], "__module__", __name__)


_put_back({{{annotated}}}, {{{explained}}}, {new_types})
"""


def spelled_out(source: str) -> str:
    """The source of a module in which each data class has a constructor of its own, unless a default has a factory; and
    in which each can be copied and pickled by its constructor, which of a frozen one is the only way in.

    Raises:
        ValueError: One has a base of another module, or is followed by no blank lines: it cannot be done then.
    """
    lines, known, body = source.split("\n"), dict[str, list[ast.AnnAssign]](), ast.parse(source).body
    for one in body:
        decorator = _decorator(one)
        if not isinstance(one, ast.ClassDef) or decorator is None:
            continue
        own = [field for field in one.body if isinstance(field, ast.AnnAssign)]
        if any(isinstance(field.value, ast.Call) and ast.unparse(field.value.func) == "field" for field in own):
            _put(lines, one, [_reduce(one, own)])
            continue
        fields = [*_inherited(one, known), *own]
        known[one.name] = fields
        if fields:
            _declare(lines, decorator)
            _construct(lines, one, fields, frozen="frozen=True" in ast.unparse(decorator))
    return "\n".join(lines) + _put_back(body)


def _put_back(body: list[ast.stmt]) -> str:
    annotated, explained = list[str](), list[str]()
    for one in body:
        if not isinstance(one, ast.ClassDef):
            continue
        own = [field for field in one.body if isinstance(field, ast.AnnAssign)]
        # Neither a data class nor a plain one: mypyc makes it as Python does, and annotates the members of an enumeration.
        as_python = bool(one.bases) and _decorator(one) is None
        if own or as_python:
            annotations = {ast.unparse(field.target): ast.unparse(field.annotation) for field in own}
            annotated.append(f"{one.name}: {annotations}")
        if as_python and ast.get_docstring(one):
            explained.append(f"{one.name}: {ast.get_docstring(one, clean=False)!r}")
    new_types = tuple(
        ast.unparse(one.targets[0])
        for one in body
        if isinstance(one, ast.Assign) and ast.unparse(one.value).startswith("NewType(")
    )
    if not (annotated or explained or new_types):
        return ""
    return _PUT_BACK.format(annotated=", ".join(annotated), explained=", ".join(explained), new_types=new_types)


def _decorator(one: ast.stmt) -> ast.expr | None:
    for decorator in one.decorator_list if isinstance(one, ast.ClassDef) else ():
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(called, ast.Name) and called.id == _DECORATOR:
            return decorator
    return None


def _inherited(one: ast.ClassDef, known: dict[str, list[ast.AnnAssign]]) -> list[ast.AnnAssign]:
    fields: list[ast.AnnAssign] = []
    for base in map(ast.unparse, one.bases):
        if base not in known:
            raise ValueError(f"the data class {one.name} has the base {base}, whose fields are not known")
        fields += known[base]
    return fields


def _declare(lines: list[str], decorator: ast.expr) -> None:
    """``dataclass`` makes no constructor."""
    assert decorator.end_lineno is not None
    index = decorator.end_lineno - 1
    if isinstance(decorator, ast.Call):
        lines[index] = lines[index].rstrip()[:-1] + (", " if decorator.keywords else "") + "init=False)"
    else:
        lines[index] += "(init=False)"


def _construct(lines: list[str], one: ast.ClassDef, fields: list[ast.AnnAssign], frozen: bool) -> None:
    names = [ast.unparse(field.target) for field in fields]
    wanted = [
        f"{name}: {ast.unparse(field.annotation)}" + (f" = {ast.unparse(field.value)}" if field.value else "")
        for name, field in zip(names, fields, strict=True)
    ]
    sets = "; ".join(f"self.{name} = {name}" for name in names)
    allowed = "  # type: ignore[misc]" if frozen else ""
    made = f"    def __init__(self, {', '.join(wanted)}) -> None: {sets}{allowed}"
    _put(lines, one, [made, _reduce(one, fields)])


def _reduce(one: ast.ClassDef, fields: list[ast.AnnAssign]) -> str:
    return _REDUCE.format(name=one.name, values=", ".join(f"self.{ast.unparse(field.target)}" for field in fields))


def _put(lines: list[str], one: ast.ClassDef, methods: list[str]) -> None:
    """Put methods where two blank lines are."""
    assert one.end_lineno is not None
    end = one.end_lineno
    lines += [""] * (end + 2 - len(lines))
    if lines[end].strip() or lines[end + 1].strip():
        raise ValueError(f"the data class {one.name} is not followed by two blank lines")
    lines[end : end + len(methods)] = methods
