"""What travels between service, agents and supervisors: JSON objects, one dataclass each, with limits.

The node side must stay light, so these are plain dataclasses; the HTTP edge of the service adds pydantic models on top.
Instants at this edge are Unix seconds (``_s``), sizes are bytes.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_origin, get_type_hints

from gpufair.core.errors import GpufairError

API_VERSION = 1
MAX_BOOT = 128  # characters of a boot id
MAX_BODY_BYTES = 1 << 20  # a hello of an agent with 1,000 workloads is about 300 kB
COMMAND_WAIT_S = 20.0  # long poll: below the 30 s at which common proxies cut
HEARTBEAT_S = 5.0
NONE_LEFT = -1  # CPUs or bytes of a node: it has none for us, while 0 means that it is not known
NOTIFY = ("start", "preempted", "restored", "failed", "end", "budget", "all")  # what one may ask to be told

Message = TypeVar("Message")


class WireError(GpufairError):
    """A message is not what this version understands."""


@dataclass(frozen=True, slots=True)
class NodeInventory:
    """What an agent offers. ``gpu_ids`` are NVML UUIDs or ``virtual-0``…; their count is the node's GPUs.

    ``cpus`` and ``memory_bytes`` 0: not known, and not counted; ``NONE_LEFT``: there are none for us.
    """

    name: str
    gpu_ids: tuple[str, ...] = ()
    gpu_type: str = ""
    pool: str = "default"
    cpus: int = 0
    memory_bytes: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    device_files: tuple[str, ...] = ()  # patterns: whoever holds one open uses its GPUs; none: those of the driver
    host: str = ""  # what other machines call it; "": it is that of the service


@dataclass(frozen=True, slots=True)
class Command:
    """Service -> agent. Repeating one is harmless: (workload, incarnation, kind) names the effect.

    kinds:
      ``start``       ``args`` is a ``StartArgs`` as dict
      ``preempt``     notice: checkpoint and stop by ``deadline_s``; ``text`` is the sentence shown to the user
      ``stop``        kill now, no checkpoint
      ``save``        checkpoint and go on
      ``hold``        checkpoint once no cell runs (waits ``wait_s`` for that), and begin none for ``hold_s`` after it
      ``restart``     kill the kernel, start a new one on the same GPUs, no restore
      ``restore``     load checkpoint ``id`` into the live (idle) kernel
      ``interrupt``   as the user's interrupt button
      ``preflight``   say what a checkpoint would be like
    """

    seq: int
    kind: str
    workload: str
    incarnation: int
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StartArgs:
    """Arguments of ``start``. Secrets in here go to owner-only files on the node, never into a log."""

    launch: dict[str, Any]  # {"type": "kernel"|"command", "argv": [...], "cwd": str, "env": {...}}
    user: str
    name: str
    gpus: int  # on this node
    kernel_key: str  # hex; the Jupyter session key for the kernel's whole life
    checkpoint_key: str  # hex; signs and verifies this user's checkpoints
    checkpoint_dir: str  # folder or URL of this workload's checkpoints (one sub-folder per checkpoint)
    image_dir: str  # folder of its process images, always one of a machine
    record_dir: str  # folder of this workload's recorded outputs
    next_sequence: int  # number of the next checkpoint
    restore: str | None = None  # checkpoint id (= sub-folder of checkpoint_dir) to start from
    autosave_share: float = 0.0  # of the time, that checkpoints after cells may take; 0: none are taken
    run_limit_s: float | None = None  # of a command: after so long it is told to leave, and has timed out
    grace_s: float = 20.0  # for that
    checkpoint_store: dict[str, Any] = field(default_factory=dict)  # fields of gpufair.node.checkpoint.StoreOptions
    memory_bytes: int = 0  # that it asked for on this node, and may not exceed; 0: nothing


@dataclass(frozen=True, slots=True)
class Report:
    """Agent -> service, at least once, in order per workload; ``seq`` grows by one per agent boot.

    kinds and their ``body``:
      ``serving``            {"generation": int, "connection": {"ip", "shell_port", "iopub_port", "stdin_port",
                             "control_port", "hb_port"} | {}, "devices": [str], "lost": [[name, reason]], "restored"?: false}
                             shell traffic may flow now; for a restore, only after it. Again after each ``restart``.
                             ``restored`` false: nothing was, and it can be tried again.
      ``start_failed``       {"reason"}; everything is cleaned up, GPUs are free
      ``progress``           {"step": "restoring"|"checkpointing", "fraction": float}
      ``activity``           {"busy": bool}
      ``kernel_died``        {"generation": int, "code": int, "reason"?: str}; GPUs stay held, ``restart`` is awaited for 60 s
      ``remark``             {"text"}; what its owner should know now (near its memory limit); "" withdraws it
      ``utilization``        {"span_s": float, "gpus": [[device, fraction]]} means over the last minute; what is not
                             known (virtual GPUs) is left out
      ``gpu_use``            {"unused_since_s": Unix seconds | null}: since when no process of it has touched its GPUs, or
                             null where one does; not sent where that cannot be known
      ``checkpointed``       {"id", "sequence", "at_s", "size_bytes", "duration_s", "lost": [[name, reason]]}
      ``checkpoint_failed``  {"reason"}
      ``held``               {"until_s": Unix seconds}: all is in the newest checkpoint, and no cell begins before then; or
      ``not_held``           {"reason"}; both answer ``hold``, after ``checkpointed`` if there is a new one
      ``preflight``          {"parkable": bool, "reason"?: str} and, without a reason, {"size_bytes", "seconds", "bytes_per_s",
                             "measured", "taken_s", "left_out", "variables": [{"name", "kind", "state": "green"|"amber"|
                             "red", "size_bytes", "seconds", "reason"}]}, the worst first
      ``restored``           {"id", "lost": [[name, reason]]} answer to ``restore``
      ``restore_failed``     {"reason"}
      ``released``           {"busy": bool, "unsaved"?: [[cell, reason]], "why"?: str}; all processes gone, GPUs really free;
                             what no checkpoint holds; what made it end, where nobody has told it to
      ``exited``             {"outcome": "completed"|"failed"|"timed out", "code": int, "reason": str}; likewise
    """

    seq: int
    at_s: float
    kind: str
    workload: str
    incarnation: int
    body: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentHello:
    """First message of an agent boot; its answer tells from which command on to poll."""

    api_version: int
    boot: str  # random per agent process
    node: NodeInventory
    running: tuple[tuple[str, int], ...] = ()  # (workload, incarnation) of adopted supervisors
    version: str = ""  # of its jupyter-gpufair


def to_json(message: Any) -> dict[str, Any]:
    """A message as a JSON-able dict (tuples become lists when dumped)."""
    return asdict(message)


def from_json(cls: type[Message], data: object) -> Message:
    """The message in ``data``, strictly: a missing, unknown or wrongly typed field is a ``WireError`` that names it."""
    if not isinstance(data, dict):
        raise WireError(f"{cls.__name__}: expected an object, got {type(data).__name__}")
    hints, known = _fields_of(cls)  # type: ignore[arg-type]  # a class has a hash
    if unknown := sorted(set(data) - set(known)):
        raise WireError(f"{cls.__name__}: unknown field {unknown[0]!r}; known are {', '.join(known)}")
    values: dict[str, Any] = {}
    for name, f in known.items():
        if name not in data:
            if f.default is MISSING and f.default_factory is MISSING:
                raise WireError(f"{cls.__name__}: field {name!r} is missing")
            continue
        values[name] = _typed(cls.__name__, name, hints[name], data[name])
    return cls(**values)


@cache
def _fields_of(cls: type) -> tuple[dict[str, Any], dict[str, Field[Any]]]:
    # Every message is a dataclass, and the hints of one take longer than all else about reading it.
    return get_type_hints(cls), {f.name: f for f in fields(cls)}


def _typed(owner: str, name: str, hint: Any, value: object) -> object:
    if hasattr(hint, "__dataclass_fields__"):
        return from_json(hint, value)
    origin = get_origin(hint)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise WireError(f"{owner}.{name}: expected a list, got {type(value).__name__}")
        return tuple(tuple(item) if isinstance(item, list) else item for item in value)
    allowed: Any = hint if isinstance(hint, UnionType) or origin is None else origin
    if allowed is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, allowed) or (isinstance(value, bool) and allowed is int):
        raise WireError(f"{owner}.{name}: expected {getattr(allowed, '__name__', allowed)}, got {type(value).__name__}")
    return value


def tunnel_proof(key: str, channel: str, fingerprint: str) -> str:
    """What whoever comes from another machine shows at the port beside a kernel, in hex.

    Args:
        key: The kernel's, which only its owner and its node know.
        fingerprint: Of the certificate met there: shown to anybody else, the proof is of no use.
    """
    said = f"gpufair tunnel\n{channel}\n{fingerprint}"
    return hmac.new(key.encode(), said.encode(), hashlib.sha256).hexdigest()


def hello_proof(token: str, boot: str) -> str:
    """By what an agent knows, in the answer to its hello, that this is its service: nobody else has its token."""
    return hmac.new(token.encode(), f"gpufair hello\n{boot}".encode(), hashlib.sha256).hexdigest()
