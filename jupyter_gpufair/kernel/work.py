"""What is done to a session between cells, in the thread that runs them: save it, load it, and what belongs around that."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from gpufair.workload import companions, hooks, preemption
from gpufair.workload.loops import positions
from jupyter_gpufair.kernel import requests
from jupyter_gpufair.kernel.notice import Notice
from jupyter_gpufair.kernel.replay import Recipes, replay

MAX_LOST = 1_000  # of a reply; the manifest has all
_HOOKS_LIMIT_S = 10.0  # where no deadline is known
_LOOK_S, _FIXED_S = 0.5, 0.02  # of a decision; of any checkpoint, for its few fsyncs
_MEASURABLE_BYTES = 4 << 20
_REPLAY, _RERUN = "gpufair:replay", "gpufair:rerun"
_AWAY = "gpufair:away"
_LOOPS, _FUNCTION = "gpufair:loops", "gpufair:on_preempt:"

Content = dict[str, Any]


class Work:
    """Of one kernel. All methods belong to the main thread, except ``announce``."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._notice: Notice | None = None
        self._told: Notice | None = None  # the preemption for which the user's functions have been called
        self._parked: hooks.Parked | None = None
        self._bytes_per_s: float | None = None  # as measured at the last checkpoints
        self._tracker: Any = None  # what the last checkpoint saw; made when there is one
        self._moved: Any = None  # what was moved off the GPUs for a checkpoint
        self.taken = 0  # checkpoints so far
        self.newest: str | None = None  # the id of the last one that was taken or loaded
        self.loaded: str | None = None  # the id of the last one that was loaded
        self.away: dict[str, tuple[Any, bool]] = {}  # what cells wait for elsewhere; see ``away``
        self.rerun = False  # the session's cells run again after a preemption: see ``again``
        self.dirty = False  # a cell has run since the last one
        self.recipes = Recipes()
        self.progress = 0.0  # of the restore that is under way; any thread may look

    @property
    def untouched(self) -> bool:
        """Whether nothing has been run in this kernel, or loaded into it, since it was started."""
        return self.newest is None and not self.dirty

    def announce(self, notice: Notice | None) -> None:
        """A preemption is coming, or (None) isn't any more. Any thread may call."""
        self._notice = notice

    def checkpoint(self, asked: requests.CheckpointRequest, *, inside: bool) -> Content:
        """Save the session; ``inside`` a cell that has reached a safe point, or between cells."""
        from gpufair.node import checkpoint  # noqa: PLC0415 - not needed at the start of a kernel
        from jupyter_gpufair.kernel import session, shell_state  # noqa: PLC0415

        shell = self._shell
        failed = self._call_functions()
        self.resume()  # a checkpoint before this one may have been held and given up
        parked = hooks.Parked(shell.user_ns, self._limit_s())
        if asked.hold_s:
            self._move_out()
        self._tracker = self._tracker or checkpoint.Tracker()
        companions.before_save()
        try:
            result = checkpoint.save(
                shell.user_ns,
                directory=asked.directory,
                id=asked.id,
                sequence=asked.sequence,
                key=requests.read_key(asked.key_file),
                meta={"execution_count": shell.execution_count},
                hidden=session.hidden_names(shell),
                extras=[
                    *_protocol_state(),
                    self._replay_state(inside=inside),
                    (_RERUN, self.rerun),
                    (_AWAY, self.away),
                    *shell_state.extras(shell),
                    *session.extras(shell),
                ],
                unsavable=parked.failed,
                options=checkpoint.StoreOptions.from_dict(asked.store),
                tracker=self._tracker,
            )
        finally:
            self._parked = parked
            if not asked.hold_s:
                self.resume()
        companions.saved()
        self.taken += 1
        self.newest, self.dirty = result.id, False
        self._measure(result.written_bytes, result.duration_s)  # the rest was there already
        lost = [*result.lost, *failed]
        return {
            "status": "ok",
            "id": result.id,
            "sequence": result.sequence,
            "size_bytes": result.size_bytes,
            "duration_s": result.duration_s,
            "saved": len(result.saved),
            "lost": [list(item) for item in lost[:MAX_LOST]],
            "notes": [list(item) for item in result.notes[:MAX_LOST]],
        }

    def restore(self, asked: requests.RestoreRequest) -> Content:
        """Load a checkpoint into the live namespace."""
        from gpufair.node import checkpoint  # noqa: PLC0415 - not needed at the start of a kernel
        from jupyter_gpufair.kernel import session, shell_state  # noqa: PLC0415

        shell = self._shell
        self._tracker = self._tracker or checkpoint.Tracker()
        result = checkpoint.load(
            shell.user_ns,
            directory=asked.directory,
            id=asked.id,
            key=requests.read_key(asked.key_file),
            tracker=self._tracker,
            progress=self._come,
        )
        _set_protocol_state(result.extras)
        count = result.meta.get("execution_count")
        if isinstance(count, int) and count > 0:
            session.bring_back(shell, result.extras, count)
        warnings = [*result.warnings, *shell_state.bring_back(shell, result.extras)]
        failed = hooks.unpark_restored(shell.user_ns, result.restored, self._limit_s())
        lost = {**dict(result.lost), **failed}
        self.newest = self.loaded = asked.id
        self.rerun = result.extras.pop(_RERUN, None) is True
        self.away = result.extras.pop(_AWAY, None) or {}
        told = result.extras.pop(_REPLAY, None) or {}
        self.recipes.on = told.get("on") is True
        warnings += replay(told.get("recipes") or (), lost, shell.user_ns)
        return {
            "status": "ok",
            "restored": len(result.restored) - len(failed),
            "lost": [list(item) for item in list(lost.items())[:MAX_LOST]],
            "warnings": warnings,
        }

    def _replay_state(self, *, inside: bool) -> tuple[str, object]:
        # What the running cell has done so far to a generator, say, is not known.
        recipes = [] if inside else self.recipes.saved(self._shell.user_ns)
        return _REPLAY, {"on": self.recipes.on, "recipes": recipes}

    def _come(self, fraction: float) -> None:
        self.progress = fraction

    def _changes(self, within_s: float) -> Any:
        from gpufair.node import checkpoint  # noqa: PLC0415 - not needed at the start of a kernel
        from jupyter_gpufair.kernel import session  # noqa: PLC0415

        hidden = session.hidden_names(self._shell)
        return checkpoint.changes(self._shell.user_ns, self._tracker, hidden=hidden, within_s=within_s)

    def preflight(self, within_s: float, names: set[str] | None = None) -> Any:
        """What a checkpoint would be like; of these variables only, or of all."""
        from gpufair.node.checkpoint.preflight import look  # noqa: PLC0415 - not needed at the start of a kernel
        from jupyter_gpufair.kernel import session  # noqa: PLC0415

        shell = self._shell
        hidden = session.hidden_names(shell)
        return look(shell.user_ns, names, hidden=hidden, bytes_per_s=self._bytes_per_s, within_s=within_s)

    def expected(self, within_s: float, *, inside: bool) -> tuple[float, str]:
        """How long a checkpoint would take (s), and why it is not worth while (empty: it is).

        Args:
            inside: A cell is running, and at a safe point.
        """
        if not self.dirty and not inside:
            return 0.0, "no cell has run since the last checkpoint"
        names: set[str] | None = None
        taken_s = 0.0
        if self._tracker is not None:
            found = self._changes(min(within_s, _LOOK_S))
            if found.none:
                self.dirty = inside
                return 0.0, "nothing has changed since the last checkpoint"
            names, taken_s = {*found.changed, *found.unknown}, found.taken_s
        look = self.preflight(min(within_s, _LOOK_S), names)
        seconds = look.seconds + look.taken_s + taken_s + _FIXED_S
        if look.unknown:
            return max(seconds, within_s * 2), "the session is too large to look at all of it in that time"
        return (
            seconds,
            "" if seconds <= within_s else f"it would take about {seconds:.2g} s, and {within_s:.2g} s are allowed",
        )

    def _measure(self, size_bytes: int, duration_s: float) -> None:
        if size_bytes < _MEASURABLE_BYTES:  # the time of a small one is that of its fsyncs
            return
        speed = size_bytes / max(duration_s, 1e-3)
        self._bytes_per_s = speed if self._bytes_per_s is None else (self._bytes_per_s + speed) / 2

    def resume(self) -> None:
        """The session goes on in this process: what was parked for a checkpoint is taken up again."""
        if self._moved is not None:
            try:
                self._moved.back()
                self._moved = None
            except RuntimeError as err:  # somebody else has filled the GPU; tried again at the next boundary
                print(f"gpufair: tensors moved for a checkpoint are still on the host: {err}")  # noqa: T201 - to the cell
        parked, self._parked = self._parked, None
        if parked is not None:
            for name, reason in parked.unpark(self._limit_s()).items():
                print(f"gpufair: {name} was not taken up again after a checkpoint: {reason}")  # noqa: T201 - to the cell

    def _move_out(self) -> None:
        """Get what is on GPUs into host memory, for the session is about to leave. The checkpoint can do without."""
        from gpufair.node import host_swap  # noqa: PLC0415 - not needed at the start of a kernel

        # Torch's and JAX's own errors: a full host, or a GPU that fails. Whatever was moved is back then.
        with suppress(RuntimeError):
            self._moved = host_swap.before_a_save()

    def _call_functions(self) -> list[tuple[str, str]]:
        notice = self._notice
        if notice is None or notice is self._told or not notice.holds(time.time()):
            return []
        self._told = notice
        return preemption.call_all(self._limit_s())

    def _limit_s(self) -> float:
        """How long the user's hooks may take: half of what is left of the grace, so that the rest is for saving."""
        notice = self._notice
        if notice is None or not notice.deadline_s:
            return _HOOKS_LIMIT_S
        return min(max((notice.deadline_s - time.time()) / 2, 0.2), _HOOKS_LIMIT_S)


def _protocol_state() -> list[tuple[str, object]]:
    """What the session knows beside its variables; each function by itself, so that one cannot take all with it."""
    functions = [(f"{_FUNCTION}{n}", function) for n, function in enumerate(preemption.registered())]
    return [(_LOOPS, positions.saved()), *functions]


def _set_protocol_state(extras: dict[str, Any]) -> None:
    positions.restore(extras.pop(_LOOPS, None) or {})
    for name in [name for name in extras if name.startswith(_FUNCTION)]:
        with suppress(TypeError):
            preemption.on_preempt(extras.pop(name))
