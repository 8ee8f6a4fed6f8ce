"""Compiles ``gpufair.core`` with mypyc: the same sources and the same decisions in about half the CPU time.

usage: python scheduler/compile_core.py FOLDER

FOLDER then holds a copy of the package ``gpufair`` in which the core is compiled, and with it the world that the
simulator plays around it; whoever has FOLDER first on PYTHONPATH imports that one. Constructors of data classes are
written out first (``spell_out``), and docstrings are put back into the C (``explain_c``). Nothing is written beside the
sources, so no stale binary can stand in for an edited one. It takes mypy, setuptools, a C compiler and some minutes,
and next to nothing where nothing has changed. Exits 3 where it cannot.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from explain_c import explained
from spell_out import spelled_out

SOURCES: Final = Path(__file__).resolve().parent
CANNOT: Final = 3  # the exit code
# -O3 takes longer and makes nothing faster.
OPTIMISED: Final = "2"
# One looks at classes from outside, which only plain Python can; from those of the other everybody derives errors of
# their own, and a compiled method takes no object of such a class. No pass runs through either.
NOT_COMPILED: Final = ("__init__", "codec", "errors")
# Of the simulator, what runs at every event, and what is derived from that: only compiled classes can be.
PLAYED: Final = ("costs", "course", "engine", "job", "site", "story", "whatif/resumed")


class CannotCompile(Exception):
    """Something is missing here; says what."""


def compiled(folder: Path) -> Path:
    """Make the compiled package, or bring it up to date.

    Args:
        folder: Where. Its ``gpufair`` belongs to this function.

    Returns: The folder, to be put on the path.

    Raises:
        CannotCompile: There is no C compiler, or the tools are not installed.
    """
    folder = folder.resolve()
    stamp, modules = folder / ".stamp", _modules()
    content = _digest([*modules, *sorted(SOURCES.glob("*.py"))])
    if not stamp.is_file() or stamp.read_text() != content:
        _check_tools()
        stamp.unlink(missing_ok=True)
        shutil.rmtree(folder / "gpufair", ignore_errors=True)
        _compile(modules, folder)
        stamp.write_text(content)
    _copy(folder / "gpufair")
    return folder


def _modules() -> list[Path]:
    core, sim = SOURCES / "gpufair" / "core", SOURCES / "gpufair" / "sim"
    left_out = {core / f"{name}.py" for name in NOT_COMPILED}
    played = [sim / f"{name}.py" for name in PLAYED]
    return sorted([*(path for path in core.rglob("*.py") if path not in left_out), *played])


def _digest(files: list[Path]) -> str:
    known = hashlib.sha256(f"{sys.version} {sysconfig.get_config_var('SOABI')}".encode())
    for file in files:
        known.update(str(file.relative_to(SOURCES)).encode() + file.read_bytes())
    return known.hexdigest()


def _check_tools() -> None:
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(command.split()[0]) is None:
        raise CannotCompile(f"there is no C compiler ({command}); on Debian: apt-get install gcc libc6-dev")
    for name in ("setuptools", "mypyc.build"):
        try:
            importlib.import_module(name)
        except ImportError as err:
            raise CannotCompile(f"{name} cannot be imported; pip install mypy setuptools") from err


def _compile(modules: list[Path], folder: Path) -> None:
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    work = folder / ".work"

    class Build(build_ext):  # type: ignore[misc]  # published without annotations
        """Compiles several files at once, and none again that is as it was."""

        def build_extensions(self) -> None:
            one, headers = self.compiler.compile, b"".join(path.read_bytes() for path in sorted(work.glob("*.h")))

            def once(source: str, **options: Any) -> list[str]:
                objects: list[str] = self.compiler.object_filenames([source], output_dir=options["output_dir"])
                mark = Path(f"{objects[0]}.of")
                content = hashlib.sha256(headers + Path(source).read_bytes()).hexdigest()
                if not mark.is_file() or mark.read_text() != content:
                    one([source], **options)
                    mark.write_text(content)
                return objects

            def each(sources: list[str], **options: Any) -> list[str]:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    found = pool.map(lambda source: once(source, **options), sources)
                    return [path for objects in found for path in objects]

            self.compiler.compile = each
            super().build_extensions()

    sources = _written_out(work / "sources")
    with contextlib.chdir(sources):  # modules are named by their paths from here
        extensions = mypycify(
            [
                *("--strict", "--explicit-package-bases", "--ignore-missing-imports", "--config-file="),
                f"--cache-dir={work / 'mypy'}",
                *(str(module.relative_to(SOURCES)) for module in modules),
            ],
            opt_level=OPTIMISED,
            debug_level="0",
            multi_file=True,  # one file of all takes three times as long
            target_dir=str(work),
            group_name="gpufair_core",
        )
    for module in modules:
        _explain(module, work)
    build = Build(Distribution({"name": "gpufair-core", "ext_modules": extensions}))
    build.build_lib, build.build_temp = str(folder), str(work / "objects")
    build.force = True  # times tell nothing: what is as it was is known by its content
    build.ensure_finalized()
    build.run()


def _written_out(folder: Path) -> Path:
    """The sources as they are compiled, and what they import."""
    shutil.rmtree(folder, ignore_errors=True)
    package, written = SOURCES / "gpufair", set(_modules())
    for path in (package / "__init__.py", *(package / "core").rglob("*.py"), *(package / "sim").rglob("*.py")):
        copy, source = folder / path.relative_to(SOURCES), path.read_text(encoding="utf-8")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(spelled_out(source) if path in written else source, encoding="utf-8")
    return folder


def _explain(module: Path, work: Path) -> None:
    path = module.relative_to(SOURCES).with_suffix("")
    parts = path.parts[:-1] if path.name == "__init__" else path.parts
    made = work / f"__native_{'___'.join(parts)}.c"
    source = (work / "sources" / module.relative_to(SOURCES)).read_text(encoding="utf-8")
    if made.is_file():
        made.write_text(explained(made.read_text(encoding="utf-8"), source, ".".join(parts)), encoding="utf-8")


def _copy(package: Path) -> None:
    """All that is not compiled, and the sources of what is, for whoever reads a trace."""
    source = SOURCES / "gpufair"
    for path in package.rglob("*"):
        if path.is_file() and path.suffix != ".so" and not (source / path.relative_to(package)).exists():
            path.unlink()
    shutil.copytree(source, package, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    first = (source / "core" / "__init__.py").read_text(encoding="utf-8")
    (package / "core" / "__init__.py").write_text(
        first.replace("COMPILED = False", "COMPILED = True"), encoding="utf-8"
    )


def main() -> int:
    """The command."""
    try:
        print(f"The compiled core is in {compiled(Path(sys.argv[1]))}")
    except CannotCompile as why:
        print(f"The core cannot be compiled here: {why}", file=sys.stderr)
        return CANNOT
    return 0


if __name__ == "__main__":
    sys.exit(main())
