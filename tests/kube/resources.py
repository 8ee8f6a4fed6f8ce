"""The resources that the fake API server knows, and what is particular to each."""

from __future__ import annotations

from dataclasses import dataclass, field

DNS_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_1035_LABEL = r"[a-z]([-a-z0-9]*[a-z0-9])?"
# Role names may hold colons.
PATH_SEGMENT = r"[^/%]+"


@dataclass(frozen=True)
class Resource:
    """One kind of object. ``fields`` are the field selectors beyond those of metadata."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    name_pattern: str = DNS_SUBDOMAIN
    name_length: int = 253
    has_status: bool = False
    fields: tuple[str, ...] = ()
    # What the API server answers to a DELETE that ends the object: the object itself, or a Status.
    returns_deleted: bool = False
    # Whether a PUT without a resourceVersion, and one of a name that is not there, are taken.
    unconditional_update: bool = True
    create_on_update: bool = False
    subresources: tuple[str, ...] = field(default=())

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """As in the API server's sentences: `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


POD_FIELDS = (
    "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
    "status.phase", "status.podIP", "status.nominatedNodeName",
)  # fmt: skip
EVENT_FIELDS = (
    "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion",
    "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
)  # fmt: skip

_RBAC = "rbac.authorization.k8s.io"

RESOURCES = (
    Resource("nodes", "Node", namespaced=False, has_status=True, fields=("spec.unschedulable",)),
    Resource(
        "pods",
        "Pod",
        has_status=True,
        fields=POD_FIELDS,
        returns_deleted=True,
        subresources=("binding", "eviction", "log"),
    ),
    Resource("secrets", "Secret", fields=("type",)),
    Resource("configmaps", "ConfigMap"),
    Resource(
        "services",
        "Service",
        has_status=True,
        name_pattern=DNS_1035_LABEL,
        name_length=63,
        unconditional_update=False,
    ),
    Resource("events", "Event", fields=EVENT_FIELDS),
    Resource(
        "namespaces",
        "Namespace",
        namespaced=False,
        has_status=True,
        name_pattern=DNS_LABEL,
        name_length=63,
        fields=("status.phase",),
    ),
    Resource("serviceaccounts", "ServiceAccount", returns_deleted=True, subresources=("token",)),
    Resource("persistentvolumeclaims", "PersistentVolumeClaim", has_status=True, returns_deleted=True),
    Resource("persistentvolumes", "PersistentVolume", namespaced=False, has_status=True, returns_deleted=True),
    Resource("resourcequotas", "ResourceQuota", has_status=True, returns_deleted=True),
    Resource("leases", "Lease", "coordination.k8s.io", unconditional_update=False, create_on_update=True),
    Resource("jobs", "Job", "batch", has_status=True, fields=("status.successful",)),
    Resource("deployments", "Deployment", "apps", has_status=True),
    Resource("statefulsets", "StatefulSet", "apps", has_status=True),
    Resource("poddisruptionbudgets", "PodDisruptionBudget", "policy", "v1beta1", has_status=True),
    Resource("priorityclasses", "PriorityClass", "scheduling.k8s.io", namespaced=False),
    Resource("roles", "Role", _RBAC, name_pattern=PATH_SEGMENT),
    Resource("rolebindings", "RoleBinding", _RBAC, name_pattern=PATH_SEGMENT),
    Resource("clusterroles", "ClusterRole", _RBAC, namespaced=False, name_pattern=PATH_SEGMENT),
    Resource("clusterrolebindings", "ClusterRoleBinding", _RBAC, namespaced=False, name_pattern=PATH_SEGMENT),
)

BY_PATH = {(r.group, r.version, r.plural): r for r in RESOURCES}
BY_PLURAL = {r.plural: r for r in RESOURCES}
BY_KIND = {(r.api_version, r.kind): r for r in RESOURCES}
