"""Pods of others that ask for our scheduler: what they want, as workloads, and what is wrong with those that cannot be.

A pod says by labels (or annotations, which may hold any text) under which allocation it runs and for how long it is to be
protected; pods of one gang start together or not at all. Nothing is done here, and no pod is believed beyond what the
configuration gives to its namespace.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from gpufair.core.errors import GpufairError
from gpufair.core.model import Kind, Shape, WorkloadSpec
from gpufair.core.units import HOUR, SECOND, AllocationPath, Millis, PoolName, WorkloadId
from gpufair.service.backends.kubernetes import names
from gpufair.service.backends.kubernetes.requests import FINISHED, requested
from gpufair.service.settings.durations import parse_duration
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from gpufair.service.settings.node_options import MAX_NODES
from gpufair.service.settings.tables import hint

Object = Mapping[str, Any]
LAUNCH: Final = "pod"  # the type of a launch
USUAL_GRACE: Final = Millis(30 * SECOND)  # of Kubernetes
_SHOWN: Final = 80  # characters of what a pod says, in what is said of it: an annotation may have 256 KiB
_DIGITS: Final = len(str(MAX_NODES))
_log = logging.getLogger(__name__)


class BadPod(GpufairError):
    """A pod asks for something that cannot be; the text is for whoever made it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Pods that are to start together, the one of rank 0 first, as a workload. Its id follows from their uids."""

    id: WorkloadId
    spec: WorkloadSpec
    pods: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Remark:
    """What the owner of a pod that stays pending is to know. ``wrong``: it stays so until he changes something."""

    pod: Object
    text: str
    wrong: bool = True


def wishes(
    pods: Iterable[Object], pool: str, options: KubernetesOptions, known: Container[str] = ()
) -> tuple[tuple[Wish, ...], tuple[Remark, ...]]:
    """What pods of others want, and what is to be said of those that want nothing that can be.

    Args:
        pods: Of all namespaces, whatever their order; those that are not for us, have a node or are leaving are passed over.
        known: Uids of pods that belong to a workload already.
    """
    gangs: dict[tuple[str, str, str], list[Object]] = defaultdict(list)
    for pod in pods:
        if _asks(pod, pool, options) and _uid(pod) not in known:
            namespace, gang = pod["metadata"]["namespace"], said(pod, names.GANG)
            gangs[namespace, gang, "" if gang else _uid(pod)].append(pod)
    found: list[Wish] = []
    remarks: list[Remark] = []
    for _, members in sorted(gangs.items()):
        members.sort(key=_age)
        try:
            _allowed(str(members[0]["metadata"]["namespace"]), options)
            size = _size(members)
            wanted = [_spec(pod, pool, options, size) for pod in members]
            _alike(members, wanted)
        except BadPod as err:
            remarks += [Remark(pod, str(err)) for pod in members]
            continue
        except Exception:  # noqa: BLE001  # anybody may write anything on a pod, and the others' are to be scheduled
            _log.exception("pod %s/%s cannot be read", members[0]["metadata"]["namespace"], members[0]["metadata"]["name"])
            remarks += [Remark(pod, "gpufair cannot read what it asks for; an operator finds the reason in the service's log") for pod in members]
            continue
        # What is left over belongs to the gang's next set, as when a controller makes pods anew.
        for at in range(0, len(members), size):
            part = tuple(members[at : at + size])
            if len(part) == size:
                found.append(Wish(_id(part), _with_pods(wanted[at], part), part))
            else:
                text = f"gang {_shown(said(part[0], names.GANG))} has {len(part)} of {size} pods; it is queued when all are there"
                remarks += [Remark(pod, text, wrong=False) for pod in part]
    # Who came first is submitted first.
    return tuple(sorted(found, key=lambda wish: _age(wish.pods[0]))), tuple(remarks)


def pods_of(spec: WorkloadSpec) -> tuple[tuple[str, str], ...]:
    """(Name, uid) of the pods of a workload that is pods of others, by rank; none of any other."""
    if spec.launch.get("type") != LAUNCH:
        return ()
    given = spec.launch.get("pods")
    return tuple((str(name), str(uid)) for name, uid in given) if isinstance(given, list | tuple) else ()


def namespace_of(spec: WorkloadSpec) -> str:
    """Where these pods are."""
    return str(spec.launch.get("namespace", ""))


def said(pod: Object, what: str) -> str:
    """What a pod says of itself: by annotation, else by label."""
    metadata = pod.get("metadata") or {}
    return str((metadata.get("annotations") or {}).get(what) or (metadata.get("labels") or {}).get(what) or "")


def grace_of(pod: Object) -> Millis:
    """From its SIGTERM to its SIGKILL: what it asks for, at most an hour. Whoever waits for its GPUs waits no longer."""
    asked = (pod.get("spec") or {}).get("terminationGracePeriodSeconds")
    return Millis(max(SECOND, min(HOUR, asked * SECOND))) if isinstance(asked, int) else USUAL_GRACE


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _shown(text: str) -> str:
    return repr(_cut(text))


def _asks(pod: Object, pool: str, options: KubernetesOptions) -> bool:
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    if spec.get("schedulerName") != options.scheduler_name or spec.get("nodeName") or spec.get("schedulingGates"):
        return False
    if metadata.get("deletionTimestamp") or (pod.get("status") or {}).get("phase") in FINISHED:
        return False
    if metadata.get("namespace") == options.namespace and names.is_ours(pod):
        return False
    return said(pod, names.POOL) in {"", pool}


def _spec(pod: Object, pool: str, options: KubernetesOptions, nodes: int) -> WorkloadSpec:
    """What one pod wants; the pods themselves are added when all are there. Raises ``BadPod``."""
    namespace = str(pod["metadata"]["namespace"])
    resource, gpus = _gpus(pod, options)
    where = {str(key): str(value) for key, value in (pod["spec"].get("nodeSelector") or {}).items()}
    _refuse_affinity(pod)
    if resource:
        where[names.RESOURCE] = resource
    return WorkloadSpec(
        allocation=AllocationPath(_allocation(pod, namespace, options)),
        # No person is called so: what a namespace runs is nobody's to end but an operator's, and its own by `kubectl`.
        user=f"namespace:{namespace}",
        kind=Kind.BATCH,
        shape=Shape(
            gpus_per_node=gpus,
            nodes=nodes,
            cpus_per_node=math.ceil(requested(pod, "cpu")),
            memory_per_node=math.ceil(requested(pod, "memory")),
            where=tuple(sorted(where.items())),
        ),
        min_runtime=_min_runtime(pod),
        resumable=_resumable(pod),
        pools=(PoolName(pool),),
        name=_title(pod),
        grace=grace_of(pod),
        launch=MappingProxyType({"type": LAUNCH, "namespace": namespace, "pool": pool}),
    )


def _with_pods(spec: WorkloadSpec, pods: Iterable[Object]) -> WorkloadSpec:
    listed = [[str(pod["metadata"]["name"]), _uid(pod)] for pod in pods]
    return replace(spec, launch=MappingProxyType({**spec.launch, "pods": listed}))


def _allowed(namespace: str, options: KubernetesOptions) -> tuple[str, ...]:
    """What a namespace may use. Raises ``BadPod`` where that is nothing."""
    allowed = options.namespaces.get(namespace, ())
    if not allowed:
        raise BadPod(
            f"namespace {namespace!r} may use no allocation of gpufair; an operator can give it some under [pool.kubernetes.namespaces]"
        )
    return tuple(allowed)


def _allocation(pod: Object, namespace: str, options: KubernetesOptions) -> str:
    allowed = _allowed(namespace, options)
    asked, listed = said(pod, names.ALLOCATION), ", ".join(allowed)
    if not asked:
        raise BadPod(f"the label {names.ALLOCATION} is missing; {namespace!r} may use {listed}")
    # A label has no slashes: "language.speech" means language/speech there, where nothing else is called so.
    meant = [one for one in allowed if asked in {one, one.replace("/", "."), names.label_value(one)}]
    if len(meant) > 1:
        raise BadPod(f"{names.ALLOCATION}: {_shown(asked)} may be {' or '.join(meant)}; say which by an annotation of the same name")
    if not meant:
        raise BadPod(f"{names.ALLOCATION}: {namespace!r} may not use {_shown(asked)}{hint(asked[:_SHOWN], allowed)}; it may use {listed}")
    return meant[0]


def _min_runtime(pod: Object) -> Millis:
    asked = said(pod, names.MIN_RUNTIME)
    if not asked:
        return Millis(0)
    try:
        return parse_duration(_cut(asked))
    except ValueError as err:
        raise BadPod(f"{names.MIN_RUNTIME}: {err}") from err


def _resumable(pod: Object) -> bool:
    asked = said(pod, names.RESUMABLE)
    if asked not in {"", "true", "false"}:
        raise BadPod(f"{names.RESUMABLE}: {_shown(asked)} is neither true nor false; true: it goes on where it was when it is made anew")
    return asked == "true"


def _gpus(pod: Object, options: KubernetesOptions) -> tuple[str, int]:
    """The resource of its GPUs ("" if it has none), and how many."""
    spec = pod["spec"]
    listed = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    amounts = [(one.get("resources") or {}).get(what) or {} for one in listed for what in ("requests", "limits")]
    kinds = sorted({name for one in amounts for name in one if options.type_of(name) is not None})
    asked = {name: int(requested(pod, name)) for name in kinds if requested(pod, name) > 0}
    if len(asked) > 1:
        raise BadPod(f"it asks for {' and '.join(asked)}; a pod has GPUs of one kind")
    return next(iter(asked.items()), ("", 0))


def _size(members: list[Object]) -> int:
    if not said(members[0], names.GANG):
        return 1
    sizes = {said(pod, names.GANG_SIZE) for pod in members}
    if len(sizes) > 1:
        raise BadPod(f"pods of gang {_shown(said(members[0], names.GANG))} name different {names.GANG_SIZE}: {', '.join(sorted(map(_shown, sizes)))}")
    size = sizes.pop()
    # Python reads no number of thousands of digits, and nobody needs one.
    if not (size.isascii() and size.isdecimal() and len(size) <= _DIGITS and 1 <= int(size) <= MAX_NODES):
        raise BadPod(
            f"{names.GANG_SIZE}: {_shown(size)} is no number of pods; beside {names.GANG} it says how many start together (1 to {MAX_NODES})"
        )
    return int(size)


def _alike(members: list[Object], wanted: list[WorkloadSpec]) -> None:
    for what, values in (
        (f"in {names.ALLOCATION}", {one.allocation for one in wanted}),
        (f"in {names.MIN_RUNTIME}", {one.min_runtime for one in wanted}),
        ("in what they ask for", {one.shape for one in wanted}),
    ):
        if len(values) > 1:
            raise BadPod(f"pods of gang {_shown(said(members[0], names.GANG))} differ {what}; all of a gang have to be alike")


def _refuse_affinity(pod: Object) -> None:
    spec = pod["spec"]
    hard = "requiredDuringSchedulingIgnoredDuringExecution"
    if any((of or {}).get(hard) for of in (spec.get("affinity") or {}).values()):
        raise BadPod("gpufair does not look at affinity; say by nodeSelector which nodes it may have")
    if any(one.get("whenUnsatisfiable") == "DoNotSchedule" for one in spec.get("topologySpreadConstraints") or ()):
        raise BadPod("gpufair does not look at topologySpreadConstraints; each pod of a gang gets a node of its own anyway")


def _title(pod: Object) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    owner = next((str(one.get("name") or "") for one in owners if one.get("controller")), "")
    return owner or str(pod["metadata"]["name"])


def _id(pods: tuple[Object, ...]) -> WorkloadId:
    if len(pods) == 1:
        return WorkloadId(f"pod-{_uid(pods[0])}")
    # Of a set that broke up before it started some may be in the next one, which is another workload.
    uids = "\n".join(sorted(map(_uid, pods)))
    return WorkloadId(f"gang-{hashlib.sha256(uids.encode()).hexdigest()[:32]}")


def _uid(pod: Object) -> str:
    return str((pod.get("metadata") or {}).get("uid") or "")


def _age(pod: Object) -> tuple[str, str, str]:
    metadata = pod["metadata"]
    return str(metadata.get("creationTimestamp") or ""), str(metadata.get("name")), _uid(pod)
