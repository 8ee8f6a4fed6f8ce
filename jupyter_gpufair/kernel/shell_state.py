"""What a notebook does to IPython itself: options, extensions, magics, aliases, event functions, printers.

Options are saved as they are and set where the new shell has another value, so that nobody has to know how the old one
began. Functions and classes are those of the notebook; what a library registers, it registers when it is loaded.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

_OPTIONS, _EXTENSIONS, _ALIASES = "ipython:options", "ipython:extensions", "ipython:aliases"
_MAGIC, _MAGICS, _EVENT, _PRINTER = "ipython:magic:", "ipython:magics:", "ipython:event:", "ipython:printer:"

# Of the shell, what belongs to its place and its start.
_LEFT_OUT = frozenset(
    ("ipython_dir", "logfile", "logstart", "logappend", "history_length", "history_load_length", "loop_runner")
)
_PLAIN = (bool, int, float, str, type(None))
_AUTORELOAD = "autoreload"
_MODE = "ipython:xmode"  # of tracebacks, which %xmode sets beside the option of that name


def extras(shell: Any) -> list[tuple[str, object]]:
    """What to save of it, by name; one by one, so that what cannot be saved takes nothing with it."""
    loaded = {name: _mode(shell, name) for name in shell.extension_manager.loaded}
    found: list[tuple[str, object]] = [
        (_OPTIONS, {name: _values(part) for name, part in _parts(shell)}),
        (_EXTENSIONS, dict(sorted(loaded.items()))),
        (_MODE, shell.InteractiveTB.mode),
        (_ALIASES, [alias for alias in shell.alias_manager.aliases if all(type(text) is str for text in alias)]),
    ]
    for kind, functions in shell.magics_manager.magics.items():
        found += (
            (f"{_MAGIC}{kind}:{name}", function) for name, function in functions.items() if _of_notebook(function)
        )
    for name, magics in shell.magics_manager.registry.items():
        if type(magics).__module__ == "__main__":
            found.append((f"{_MAGICS}{name}", type(magics)))
    for event, functions in shell.events.callbacks.items():
        found += ((f"{_EVENT}{event}:{n}", function) for n, function in enumerate(functions) if _of_notebook(function))
    for kind, formatter in shell.display_formatter.formatters.items():
        printers = (item for item in formatter.type_printers.items() if _of_notebook(item[1]))
        found += ((f"{_PRINTER}{kind}:{n}", printer) for n, printer in enumerate(printers))
    return found


def bring_back(shell: Any, saved: dict[str, Any]) -> list[str]:
    """Make ``saved`` (of ``extras``) hold in this shell.

    Returns: Warnings: what could not be.
    """
    warnings = []
    for name, mode in saved.get(_EXTENSIONS, {}).items():
        try:
            if name not in shell.extension_manager.loaded:
                shell.extension_manager.load_extension(name)
            if mode:
                shell.run_line_magic(_AUTORELOAD, mode)
        except Exception as err:  # noqa: BLE001 - an extension is anybody's code
            warnings.append(f"the IPython extension {name} could not be loaded ({type(err).__name__}: {err})")
    for name, text in saved.get(_ALIASES, ()):
        if not shell.alias_manager.is_alias(name):
            shell.alias_manager.soft_define_alias(name, text)
    for key, value in saved.items():
        if key.startswith(_MAGICS):
            shell.register_magics(value)
        elif key.startswith(_MAGIC):
            kind, _, name = key.removeprefix(_MAGIC).partition(":")
            shell.register_magic_function(value, kind, name)
        elif key.startswith(_EVENT):
            shell.events.register(key.removeprefix(_EVENT).rpartition(":")[0], value)
        elif key.startswith(_PRINTER):
            shell.display_formatter.formatters[key.removeprefix(_PRINTER).rpartition(":")[0]].for_type(*value)
    if (mode := saved.get(_MODE, shell.InteractiveTB.mode)) != shell.InteractiveTB.mode:
        shell.InteractiveTB.set_mode(mode=mode)
    warnings += _set_options(shell, saved.get(_OPTIONS, {}))  # last: extensions bring parts of their own
    return warnings


def _set_options(shell: Any, saved: dict[str, dict[str, Any]]) -> list[str]:
    warnings = []
    for name, part in _parts(shell):
        now = _values(part)
        for trait, value in saved.get(name, {}).items():
            if trait in now and now[trait] != value:
                try:
                    setattr(part, trait, value)
                except Exception as err:  # noqa: BLE001 - traits run functions of their own
                    warnings.append(f"IPython's option {name}.{trait} could not be set to {value!r} ({err})")
    return warnings


def _parts(shell: Any) -> Iterator[tuple[str, Any]]:
    """The configurable parts whose options a notebook changes, by class; a formatter by what it makes."""
    yield "shell", shell
    for part in shell.configurables:
        if type(part).__name__ in ("DisplayFormatter", "IPCompleter", "InlineBackend"):
            yield type(part).__name__, part
    for kind, formatter in shell.display_formatter.formatters.items():
        yield f"formatter:{kind}", formatter


def _values(part: Any) -> dict[str, Any]:
    """Options with plain values. (A trait may be left out of the class's own configuration and be set all the same.)"""
    names = [name for name in part.trait_names(config=True) if name not in _LEFT_OUT]
    return {name: value for name in names if _plain(value := getattr(part, name))}


def _plain(value: Any) -> bool:
    if type(value) in (list, tuple, set):
        return all(type(item) in _PLAIN for item in value)
    if type(value) is dict:
        return all(type(item) in _PLAIN for pair in value.items() for item in pair)
    return type(value) in _PLAIN


def _of_notebook(function: Any) -> bool:
    return type(function) is types.FunctionType and function.__module__ == "__main__"


def _mode(shell: Any, extension: str) -> str:
    """Of autoreload what its magic was told, which no option says; empty for the others."""
    reloader = getattr(shell.magics_manager.registry.get("AutoreloadMagics"), "_reloader", None)
    if extension.rpartition(".")[2] != _AUTORELOAD or reloader is None or not reloader.enabled:
        return ""
    return "all" if reloader.check_all else "explicit"
