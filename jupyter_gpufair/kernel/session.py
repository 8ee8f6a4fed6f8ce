"""The IPython side of a checkpoint: which names are the shell's own, and its In, Out and prompt number."""

from __future__ import annotations

from typing import Any

# Both caps are per checkpoint; the bytes of all outputs together are capped by the checkpoint itself.
_MAX_INPUTS = 1_000
_MAX_INPUT_CHARS = 1 << 20
_MAX_OUTPUTS = 100
_INPUTS, _RAW_INPUTS, _OUTPUT = "ipython:In", "ipython:In_raw", "ipython:Out:"
_MISSING = object()


def hidden_names(shell: Any) -> frozenset[str]:
    """Names that IPython put into the namespace and that still hold what it put there."""
    namespace = shell.user_ns
    return frozenset(name for name, value in shell.user_ns_hidden.items() if namespace.get(name, _MISSING) is value) | {
        "In",
        "Out",
    }


def extras(shell: Any) -> list[tuple[str, object]]:
    """Inputs and outputs, newest outputs first, because what exceeds the budget is left out from there on."""
    history = shell.history_manager
    found: list[tuple[str, object]] = [
        (_INPUTS, _newest(history.input_hist_parsed)),
        (_RAW_INPUTS, _newest(history.input_hist_raw)),
    ]
    outputs = [(number, value) for number, value in history.output_hist.items() if isinstance(number, int)]
    newest = sorted(outputs, key=lambda item: item[0], reverse=True)[:_MAX_OUTPUTS]
    return found + [(f"{_OUTPUT}{number}", value) for number, value in newest]


def bring_back(shell: Any, saved: dict[str, Any], execution_count: int) -> None:
    """Set In, Out, ``_`` and the prompt number from what ``extras`` gave."""
    history, namespace = shell.history_manager, shell.user_ns
    if execution_count < shell.execution_count:
        # A prompt number may occur once per session of the history's database.
        history.reset(new_session=True)
    shell.execution_count = execution_count
    for name, inputs in ((_INPUTS, history.input_hist_parsed), (_RAW_INPUTS, history.input_hist_raw)):
        # In[n] is the input of prompt n, so the list must end just before the next prompt.
        cells = list(saved.get(name, ()))[:execution_count]
        inputs[:] = [""] * (execution_count - len(cells)) + cells
    outputs = {int(name.removeprefix(_OUTPUT)): value for name, value in saved.items() if name.startswith(_OUTPUT)}
    history.output_hist.clear()
    history.output_hist.update(sorted(outputs.items()))
    for number, value in outputs.items():
        namespace[f"_{number}"] = value
        shell.user_ns_hidden[f"_{number}"] = value
    for name, number in zip(("_", "__", "___"), sorted(outputs, reverse=True), strict=False):
        setattr(shell.displayhook, name, outputs[number])
        namespace[name] = shell.user_ns_hidden[name] = outputs[number]


def _newest(cells: list[str]) -> list[str]:
    """The last cells within the caps, preceded by empty ones so that each keeps its number."""
    kept = 0
    chars = 0
    for cell in reversed(cells):
        chars += len(cell)
        if kept == _MAX_INPUTS or chars > _MAX_INPUT_CHARS:
            break
        kept += 1
    return [""] * (len(cells) - kept) + list(cells[len(cells) - kept :])
