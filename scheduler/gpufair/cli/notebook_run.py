"""`gpufair submit NOTEBOOK`: which notebook, with which parameters, and where its output goes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gpufair.cli.arrays import Member
from gpufair.cli.exits import CommandError, Wrong
from gpufair.client.notebooks import NotebookJob, check, prepare, unknown_parameters
from gpufair.core.errors import GpufairError

NOTEBOOK: Final = ".ipynb"


class NotebookRun:
    """What was asked for, checked.

    Attributes:
        source: The notebook, as in its file.
        parameters: As they were written, by name.
        kernel: Its name; "": that of the notebook.

    Args:
        words: The notebook, and maybe the file for its output; by default NAME-out.ipynb beside it.
        parameters: As NAME=VALUE. ``{name}`` of an array is filled in, in these and in the name of the output.
        kernel: Its name; "": that of the notebook.

    Raises:
        Wrong: There are more words, or a parameter is written in another way.
        CommandError: The notebook cannot be read.
    """

    def __init__(self, words: Sequence[str], parameters: Sequence[str], kernel: str) -> None:
        if len(words) > 2:
            raise Wrong(f"a notebook takes one more word, the file for its output; {words[2]!r} is one too many")
        self.source = _read(Path(words[0]))
        path = Path(words[0])
        self._output = words[1] if len(words) > 1 else str(path.with_name(f"{path.stem}-out{NOTEBOOK}"))
        if not self._output.endswith(NOTEBOOK):
            raise Wrong(f"the output {self._output} must end with {NOTEBOOK}")
        if Path(self._output).absolute() == path.absolute():
            raise Wrong(f"the output would replace {words[0]} itself; name another file")
        self.parameters = dict(_pair(one) for one in parameters)
        self.kernel = kernel

    def unexpected(self, run: Member) -> list[str]:
        """Parameters that the notebook's own cell of them does not have."""
        return unknown_parameters(self.source, [*dict(run.values), *self.parameters])

    def require_distinct_outputs(self) -> None:
        """Of an array: each member has an output, and gets its value as a parameter."""
        if "{" not in self._output:
            path = Path(self._output)
            self._output = str(path.with_name(f"{path.stem}-{{index}}{NOTEBOOK}"))

    @contextmanager
    def prepared(self, run: Member, workload: str) -> Iterator[Path]:
        """Its folder; gone again if the submission fails."""
        values = dict(run.values) | {name: run.fill(value) for name, value in self.parameters.items()}
        output = str(Path(run.fill(self._output)).absolute())
        folder = prepare(self.source, NotebookJob(output, values, self.kernel), workload)
        try:
            yield folder
        except GpufairError:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _read(path: Path) -> bytes:
    try:
        source = path.read_bytes()
    except OSError as err:
        raise CommandError(f"{path} cannot be read: {err.strerror or err}") from err
    check(source)
    return source


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise Wrong(f"--parameter {text!r}: write it as NAME VALUE, like -p lr 0.1")
    return name, value
