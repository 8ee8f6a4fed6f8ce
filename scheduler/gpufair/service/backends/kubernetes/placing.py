"""Getting a pod to its node: made, given its secret, bound. Each step may have been done before, by whoever."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gpufair.core.errors import GpufairError
from gpufair.core.state import State
from gpufair.core.units import WorkloadId
from gpufair.node.pod_config import PodConfig
from gpufair.service.backends.kubernetes import explain, manifests
from gpufair.service.backends.kubernetes.made import Made, Place
from gpufair.service.backends.kubernetes.manifests import BadManifest, PodOrder
from gpufair.service.backends.kubernetes.names import SERVICE, NotOurs, PodKey, key_of, of_another, pod_name
from gpufair.service.backends.kubernetes.problems import Conflict, Forbidden, Invalid, Missing, Unavailable
from gpufair.service.backends.kubernetes.site import Site
from gpufair.service.backends.kubernetes.verdict import Ending, Verdict
from gpufair.service.settings.pod_storage import STATE_DIR
from gpufair.service.settings.profile_options import POD_PROFILE
from gpufair.service.workloads.pools import OneNodeOnly
from gpufair.wire import Command, StartArgs, from_json

QUOTA_S: Final = 5.0  # between two tries of what somebody else has to make possible
_TOKEN, _CA = "token", "ca.pem"
_NVIDIA: Final = "nvidia.com/"
_log = logging.getLogger(__name__)


class Refused(GpufairError):
    """It will not get there, however often it is tried."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict

    def __str__(self) -> str:
        return self.verdict.text


class Waits(GpufairError):
    """It cannot get there now, for a reason that its owner is told.

    ``endless``: however long it takes, as nobody else could have its GPUs meanwhile.
    """

    def __init__(self, text: str, pause_s: float = QUOTA_S, *, endless: bool = False) -> None:
        super().__init__(text, pause_s)
        self.text, self.pause_s, self.endless = text, pause_s, endless

    def __str__(self) -> str:
        return self.text


async def next_step(site: Site, key: PodKey, place: Place, start: Command, made: Made) -> None:
    """The first of the steps that is not done yet.

    Raises:
        Refused: It is no use.
        Waits: Not now; the text is for its owner.
        KubernetesProblem: Try again.
    """
    try:
        if not made.uid:
            await _make(site, key, place, start, made)
        elif not made.published:
            await _publish(site, await _order(site, key, place, start, made), made)
        elif not made.secret:
            await _confide(site, await _order(site, key, place, start, made), made)
        else:
            await _bind(site, key, place, made)
    except (Forbidden, Invalid) as problem:
        raise _judged(problem) from problem
    except Missing as problem:
        raise Waits(str(problem)) from problem  # the namespace: somebody has to make it


def _judged(problem: Forbidden | Invalid) -> GpufairError:
    # A right or a quota is not its owner's fault, and may be mended any time; a policy or a field is as it is.
    if isinstance(problem, Forbidden) and problem.kind in {"quota", "rights", "namespace"}:
        return Waits(str(problem))
    return Refused(explain.refused(problem))


async def _make(site: Site, key: PodKey, place: Place, start: Command, made: Made) -> None:
    order = await _order(site, key, place, start, made)
    args = from_json(StartArgs, start.args)
    if order.nodes > 1 and args.launch.get("type") == "kernel":  # submitted before that was refused
        raise Refused(Verdict(Ending.FAILED, str(OneNodeOnly(site.pool, order.nodes))))
    try:
        manifest = manifests.pod(order, site.options, site.template_of(str(args.launch.get(POD_PROFILE) or "")))
    except BadManifest as err:
        raise Refused(Verdict(Ending.FAILED, str(err))) from err
    manifest["metadata"]["annotations"][SERVICE] = site.secrets.public_name()
    if site.options.claim:
        try:
            await asyncio.to_thread(_make_folders, order, manifest)
        except OSError as err:
            raise Waits(
                f"the folders of its records and checkpoints cannot be made here ({err}); an operator can look at the volume "
                "behind claim_path of [pool.kubernetes]"
            ) from err
    pod: Mapping[str, Any]
    try:
        pod = await site.write("POST", site.path("pods"), manifest)
    except Unavailable as problem:
        made.perhaps = made.perhaps or problem.perhaps_done
        raise
    except Conflict as conflict:
        if conflict.kind != "exists":
            raise
        pod = await _found(site, key, conflict)
    made.see(pod)


async def _found(site: Site, key: PodKey, conflict: Conflict) -> Mapping[str, Any]:
    """The pod of our name that is there: this very one, made by a call whose answer was lost, or by a service before."""
    try:
        pod = await site.read(site.path("pods", pod_name(key)))
    except Missing:
        raise conflict from None  # it is gone already: the next try makes one
    try:
        ours = key_of(pod) == key and not of_another(pod, site.secrets.public_name())
    except NotOurs:
        ours = False
    if not ours:
        raise Refused(Verdict(Ending.FAILED, f"{conflict}; the pod of this name is none of ours: delete it, or give us another namespace"))
    return pod


def _make_folders(order: PodOrder, manifest: Mapping[str, Any]) -> None:
    """A kubelet would make them for root alone. They are of the group that the pod's files have."""
    group = (manifest["spec"].get("securityContext") or {}).get("fsGroup")
    for folder in (order.record_dir, order.checkpoint_dir):
        if not folder or "://" in folder:
            continue
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True, mode=0o770)
        if isinstance(group, int) and path.stat().st_gid != group and os.geteuid() == 0:
            os.chown(path, -1, group)
            path.chmod(0o2770)


async def _publish(site: Site, order: PodOrder, made: Made) -> None:
    """The service by whose names the pods of a gang can find one another. It goes with the first of them."""
    if order.nodes > 1 and order.key.rank == 0:
        try:
            await site.write("POST", site.path("services"), manifests.service(order, site.options, made.uid))
        except Conflict as conflict:
            if conflict.kind != "exists":
                raise
    made.published = True


async def _confide(site: Site, order: PodOrder, made: Made) -> None:
    manifest = manifests.secret(order, site.options, made.uid, await _files(site, order))
    name = pod_name(order.key)
    try:
        await site.write("POST", site.path("secrets"), manifest)
    except Conflict as conflict:
        if conflict.kind != "exists":
            raise
        try:
            found = await site.read(site.path("secrets", name))
        except Missing:
            raise conflict from None  # it went with the pod that had the name before
        owners = found["metadata"].get("ownerReferences") or []
        if not any(owner.get("uid") == made.uid for owner in owners):
            # Of a pod that had the name before: it goes with that, but we need not wait.
            uid = {"preconditions": {"uid": found["metadata"]["uid"]}}
            await site.write("DELETE", site.path("secrets", name), {"apiVersion": "v1", "kind": "DeleteOptions", **uid})
            raise
    made.secret = True


async def _ca(site: Site) -> str | None:
    """The certificates that a pod's agent trusts, as they are now; while their file is away, as they were."""
    path = site.options.service_ca
    if path is None:
        return None
    try:
        site.service_ca = await asyncio.to_thread(path.read_text)
    except (OSError, ValueError) as err:
        if not site.service_ca:
            raise Waits(
                f"service_ca of [pool.kubernetes], {path}, cannot be read ({err}), and its pod could not know the service without it; "
                "an operator can put the file back"
            ) from err
        _log.warning("service_ca %s cannot be read (%s); pods are given what was in it", path, err)
    return site.service_ca


async def _files(site: Site, order: PodOrder) -> dict[str, str]:
    options, name = site.options, pod_name(order.key)
    service: dict[str, Any] = {"url": options.service_url}
    files = {_TOKEN: site.secrets.pod_token(name)}
    if (ca := await _ca(site)) is not None:
        service["ca"] = _CA
        files[_CA] = ca
    config = PodConfig(
        pod=name,
        workload=order.key.workload,
        incarnation=order.key.incarnation,
        service=service,
        token_file=Path(_TOKEN),
        folder=Path(STATE_DIR),
        grace_s=float(manifests.grace_s(order, options)),
        gpus=order.gpus,
        # NVML knows the devices of one maker; all others are numbers to us.
        virtual=not order.resource.startswith(_NVIDIA),
        ports=options.tunnel_ports,
    )
    files[manifests.CONFIG_NAME] = json.dumps(config.written())
    return files


async def _bind(site: Site, key: PodKey, place: Place, made: Made) -> None:
    name = pod_name(key)
    try:
        body = manifests.binding(name, site.options.namespace, made.uid, place.host)
        await site.write("POST", site.path("pods", name, "binding"), body)
    except Missing:
        raise Refused(explain.gone(None)) from None
    except Conflict as conflict:
        if conflict.kind == "stale":  # another pod has the name
            raise Refused(explain.gone(None)) from conflict
        if conflict.kind == "other":
            raise
        try:
            pod = await site.read(site.path("pods", name))
        except Missing:
            raise Refused(explain.gone(None)) from None
        made.see(pod)
        node = (pod.get("spec") or {}).get("nodeName")
        if node and node != place.host:
            raise Refused(Verdict(Ending.NOT_TAKEN, f"somebody else has bound its pod, to {node}; is there a second scheduler of this name?")) from conflict
        if not node:
            raise  # it is being deleted
        return
    made.bound = True


async def _order(site: Site, key: PodKey, place: Place, start: Command, made: Made) -> PodOrder:
    """What is made, the same in all steps."""
    if made.order is not None:
        return made.order
    args = from_json(StartArgs, start.args)

    def look(state: State) -> PodOrder:
        record = state.facts.record(WorkloadId(key.workload))
        spec = record.spec
        return PodOrder(
            key=key,
            pool=site.pool,
            allocation=spec.allocation,
            user=spec.user,
            name=spec.name,
            kind=spec.kind.value,
            node=place.host,
            resource=place.resource if args.gpus else "",
            gpus=args.gpus,
            grace=state.facts.grace(record),
            record_dir=args.record_dir,
            checkpoint_dir=args.checkpoint_dir,
            cpus=spec.shape.cpus_per_node,
            memory_bytes=spec.shape.memory_per_node,
            nodes=spec.shape.nodes,
        )

    made.order = await site.runtime.read(look)
    return made.order


