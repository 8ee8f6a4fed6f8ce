"""``python -m jupyter_gpufair.batch.gallery FOLDER PAGE MEGABYTES``: a gallery of the runs in a folder.

Prints what it did as JSON, or ``{"error": …}`` with the exit status 1.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from gpufair.cli.words import clean, plural
from gpufair.core.errors import GpufairError
from jupyter_gpufair.batch.gallery_cells import Cells, Renderer
from jupyter_gpufair.batch.gallery_page import page
from jupyter_gpufair.batch.gallery_runs import NotShown, Run, notebooks, opened, run_of

MAX_RUNS: Final = 2000  # rows that a browser sorts at once
_MOST_EACH = 16 << 20


class NoGallery(GpufairError):
    """There is nothing to show, or no place for it."""


def make(folder: Path, to: Path, most_bytes: int) -> dict[str, Any]:
    """Write the gallery of a folder.

    Args:
        folder: Where the output notebooks are, in it and below it.
        to: The page. Readers see the one before or this one, never a part.
        most_bytes: For what is shown of all runs together; each has an equal share.

    Returns: ``page``, ``size_bytes``, ``runs`` as fields of ``Run``; ``skipped`` and ``left_out`` as paths with reasons.

    Raises:
        NoGallery: The folder has no run, or the page cannot be written.
    """
    if not folder.is_dir():
        raise NoGallery(f"{folder} is no folder; name the one with the output notebooks")
    runs, skipped, left_out = _find(folder)
    if not runs:
        why = f"; the first of {plural(len(skipped), 'notebook')}: {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
        raise NoGallery(f"{folder} holds no notebook that gpufair has run{why}")
    renderer, share = Renderer(), min(most_bytes // len(runs), _MOST_EACH)

    def cells_of(run: Run) -> Cells:
        try:
            cells = renderer.cells(opened(folder / run.path), share)
        except Exception as err:  # noqa: BLE001  # one notebook that cannot be rendered must not cost the others
            cells = Cells("", "", clean(f"its cells, which cannot be shown ({type(err).__name__}: {err})"))
        if cells.left_out:
            left_out.append((run.path, cells.left_out))
        return cells

    temporary = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            for piece in page(f"Runs in {folder.resolve().name or folder}", runs, cells_of, skipped, left_out):
                file.write(piece)
        size = temporary.stat().st_size
        temporary.rename(to)
    except OSError as err:
        temporary.unlink(missing_ok=True)
        raise NoGallery(f"{to} cannot be written: {err.strerror or err}; name another file with --out") from err
    told = {"skipped": skipped, "left_out": left_out}
    named = {key: [{"path": path, "reason": reason} for path, reason in value] for key, value in told.items()}
    return {"page": str(to), "size_bytes": size, "runs": [asdict(one) for one in runs], **named}


def _find(folder: Path) -> tuple[list[Run], list[tuple[str, str]], list[tuple[str, str]]]:
    """The runs, the newest first; notebooks that are none; runs that are too many."""
    runs, skipped = list[Run](), list[tuple[str, str]]()
    for path in notebooks(folder):
        name = str(path.relative_to(folder))
        try:
            runs.append(run_of(opened(path), name))
        except NotShown as err:
            skipped.append((clean(name), str(err)))
    runs.sort(key=lambda run: (-(run.started_s or 0.0), run.path))
    rest = [(run.path, f"only the newest {MAX_RUNS} runs are shown") for run in runs[MAX_RUNS:]]
    return runs[:MAX_RUNS], skipped, rest


def main() -> int:
    """Entry point. Returns the exit status: 0 the page is there, 1 it is not."""
    folder, to, megabytes = sys.argv[1:]
    try:
        told, code = make(Path(folder), Path(to), int(megabytes) * 1_000_000), 0
    except GpufairError as err:
        told, code = {"error": str(err)}, 1
    sys.stdout.write(json.dumps(told))
    return code


if __name__ == "__main__":
    sys.exit(main())
