"""A pool in a cluster is described once, and a mistake in it is told with its line before anything starts."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from gpufair.core.units import MINUTE, SECOND, Millis
from gpufair.service.settings.config import load_config, parse_config
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from gpufair.service.settings.pod_template import FIELDS, REFUSED, BadTemplate, PodTemplate, pod_template
from gpufair.service.settings.profile_options import POD_PROFILE, template_of
from gpufair.service.settings.tables import ConfigError
from tests.kube.certificates import write_certificates

OPERATORS = Path(__file__).parents[3] / "docs" / "operators.md"
POOL = """\
[[pool]]
name = "cluster"
backend = "kubernetes"

[pool.kubernetes]
image = "lab/kernel:1"
service_url = "https://gpufair.gpufair.svc:8443/"
"""
PROFILE = '[[profile]]\nname = "p"\n'


def refusal(text: str, file: str = "conf.toml") -> str:
    """What is said of a configuration that is not valid."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, file)
    return str(caught.value)


def write_files(folder: Path) -> None:
    """What the examples name: a certificate, and a kubeconfig, which is not looked into."""
    write_certificates(folder)
    (folder / "ca.crt").rename(folder / "ca.pem")
    (folder / "kube.yaml").write_text("x")


def test_two_lines_are_enough() -> None:
    """The image and the address are what nobody can guess; all else has a default that suits NVIDIA's GPUs."""
    (pool,) = parse_config(POOL, "conf.toml").pools
    assert pool.kubernetes == KubernetesOptions("lab/kernel:1", "https://gpufair.gpufair.svc:8443")
    assert pool.kubernetes is not None
    assert pool.kubernetes.type_of("nvidia.com/gpu") == ""
    assert pool.kubernetes.type_of("nvidia.com/mig-1g.5gb") == ""
    assert pool.kubernetes.type_of("amd.com/gpu") is None
    assert pool.kubernetes.type_of("cpu") is None


def test_all_options_arrive(tmp_path: Path) -> None:
    """Each key of the table is read, and paths count from the file."""
    write_files(tmp_path)
    text = POOL + """\
service_ca = "ca.pem"
namespace = "ml"
kubeconfig = "kube.yaml"
context = "lab"
gpus = { "amd.com/gpu" = "MI300X" }
gpu_label = "amd.com/gpu.product-name"
node_selector = { "lab/part" = "ml" }
cpu_nodes = false
tolerations = [{ key = "dedicated", value = "ml", effect = "NoSchedule" }]
claim = "gpufair.state"
claim_path = "/var/lib/gpufair"
tunnel_ports = [43000, 43010]
scheduler_name = "fair"
lease = "gpufair-b"
lease_for = "20s"
take_over = "12-0123456789abcdef0123456789abcdef"
requests_per_s = 20
burst = 40
start_within = "5m"
margin = "30s"
node_silence = "2m"
namespaces = { speech = ["language/speech", "debug"] }
"""
    (pool,) = parse_config(text, str(tmp_path / "conf.toml")).pools
    assert pool.kubernetes == KubernetesOptions(
        "lab/kernel:1",
        "https://gpufair.gpufair.svc:8443",
        tmp_path / "ca.pem",
        "ml",
        tmp_path / "kube.yaml",
        "lab",
        {"amd.com/gpu": "MI300X"},
        "amd.com/gpu.product-name",
        {"lab/part": "ml"},
        False,
        ({"key": "dedicated", "value": "ml", "effect": "NoSchedule"},),
        "gpufair.state",
        Path("/var/lib/gpufair"),
        (43000, 43010),
        "fair",
        "gpufair-b",
        "12-0123456789abcdef0123456789abcdef",
        Millis(20 * SECOND),
        20,
        40,
        Millis(5 * MINUTE),
        Millis(30 * SECOND),
        Millis(2 * MINUTE),
        {"speech": ("language/speech", "debug")},
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('namespace = "Lab"', 'namespace = "Lab": Kubernetes takes 1 to 63 small letters'),
        ('scheduler_name = "default-scheduler"', "is the scheduler that each cluster has"),
        ('lease = "a..b"', "names joined by dots, each of 1 to 63 small letters"),
        ('lease_for = "5m"', "allowed are 5s to 1m"),
        ("gpus = {}", "gpus names no resource, so that no node would have a GPU"),
        ('gpus = { "nvidia.com/gpu" = "an H100" }', '"an H100" is no type of GPU'),
        ('gpu_label = "gpu product"', 'gpu_label = "gpu product": that is no key of a label'),
        ('node_selector = { "lab part" = "ml" }', 'node_selector has the key "lab part"'),
        ('node_selector = { part = "m l" }', 'node_selector has the value "m l"'),
        ("tolerations = [{ key = 'a b', operator = 'Exists' }]", "which is no key of a taint"),
        ('namespaces = { speech = ["a", "a"] }', "speech names an allocation twice"),
        ('gpus = { gpu = "A100" }', '"gpu" is no name of a resource; write it as nodes do'),
        ("tolerations = [{ key = 'a', efect = 'NoSchedule' }]", "number 1 has an unknown field 'efect'; did you mean 'effect'?"),
        ("tolerations = [{ effect = 'NoSchedule' }]", "names no key"),
        ("tolerations = [{ key = 'a', effect = 'Never' }]", "it is one of NoSchedule, PreferNoSchedule, NoExecute"),
        ("tolerations = [{ key = 'a', operator = 'Exists', value = 'b' }]", "leave one of them out"),
        ("tolerations = [{ key = 'a', tolerationSeconds = 5 }]", 'are for effect = "NoExecute" only'),
        ("tolerations = { key = 'a' }", "expected a list"),
        ('claim = "state"', "claim needs claim_path beside it"),
        ('claim_path = "/var/lib/gpufair"', "claim_path needs claim beside it"),
        ('claim = "state"\nclaim_path = "var"', "expected an absolute path"),
        ("tunnel_ports = [80, 90]", "from 1024 to 65535"),
        ("tunnel_ports = 42000", "the first and the last port"),
        ('kubeconfig = "nowhere.yaml"', "which is not there; correct the path"),
        ("requests_per_s = 0", "allowed are 1 to 10000"),
        ("namespaces = { speech = [] }", "speech may use no allocation"),
        ('namespaces = { gpufair = ["x"] }', "gpufair is the namespace of the service's own pods"),
        ('namespaces = { "Speech" = ["x"] }', "no name of a namespace"),
        ('imagee = "x"', "unknown key 'imagee' in [pool.kubernetes]; did you mean 'image'?"),
    ],
)
def test_mistakes_in_the_pool_have_their_line(line: str, says: str) -> None:
    """Where, what was given, what is allowed."""
    said = refusal(POOL + line)
    assert said.startswith(f"conf.toml, line {8 + line.count(chr(10))}: ")
    assert says in said


def test_a_cluster_tells_its_nodes_itself() -> None:
    """The machine of the service would else take workloads that no pod is ever made for."""
    assert parse_config(POOL, "conf.toml").nodes == ()
    beside = parse_config(POOL + '\n[[pool]]\nname = "default"\n\n[[node]]\nname = "n1"\ngpus = 1\n', "conf.toml")
    assert [node.name for node in beside.nodes] == ["n1"]
    said = refusal(POOL + '\n[[node]]\nname = "n1"\npool = "cluster"\ngpus = 1\n')
    assert "line 11" in said
    assert "node 'n1' is in the pool 'cluster', whose nodes Kubernetes tells" in said


def test_what_a_pool_in_a_cluster_cannot_do_without() -> None:
    """Neither can be guessed, so it is asked for; and tokens do not travel in the clear by accident."""
    assert "has no [pool.kubernetes] below it" in refusal('[[pool]]\nname = "c"\nbackend = "kubernetes"')
    assert 'is for a pool with backend = "kubernetes"' in refusal('[[pool]]\nname = "c"\n[pool.kubernetes]\nimage = "x"')
    assert "image has to name a container image" in refusal(POOL.replace("image", "# image"))
    assert "service_url has to be the address of this service" in refusal(POOL.replace("service_url", "# service_url"))
    plain = POOL.replace("https", "http")
    assert "keys would travel unencrypted" in refusal(plain)
    assert parse_config(plain + "insecure = true", "c").pools[0].kubernetes is not None


def test_a_template_in_the_profile() -> None:
    """What an operator says of the pods; its requests and labels are also the core's, so that both count alike."""
    text = PROFILE + """\
[profile.pod]
image = "lab/torch:2"
imagePullSecrets = [{ name = "registry" }]
env = [{ name = "HF_HOME", value = "/data/hf" }, { name = "KEY", valueFrom = { secretKeyRef = { name = "s3", key = "k" } } }]
envFrom = [{ secretRef = { name = "s3" } }]
volumes = [{ name = "data", persistentVolumeClaim = { claimName = "data" } }]
volumeMounts = [{ name = "data", mountPath = "/data", readOnly = true }]
runtimeClassName = "nvidia"
securityContext = { runAsUser = 2000 }
containerSecurityContext = { readOnlyRootFilesystem = false }
nodeSelector = { "nvidia.com/gpu.product" = "H100" }
labels = { team = "speech" }
resources = { requests = { cpu = "3500m", memory = "8Gi" }, limits = { cpu = "8", "rdma/hca" = 1 } }
"""
    (profile,) = parse_config(text, "c").profiles
    assert (profile.cpus, profile.memory, profile.where) == (4, 8 << 30, {"nvidia.com/gpu.product": "H100"})
    assert profile.pod is not None
    assert profile.pod.image == "lab/torch:2"
    assert profile.pod.container["securityContext"] == {"readOnlyRootFilesystem": False}
    assert "containerSecurityContext" not in profile.pod.container
    assert profile.pod.pod["runtimeClassName"] == "nvidia"
    assert template_of({POD_PROFILE: "p"}, (profile,)) is profile.pod
    assert template_of({}, (profile,)) == template_of({POD_PROFILE: "gone"}, (profile,)) == PodTemplate()


def test_what_the_profile_says_itself_counts_more() -> None:
    """Its own cpus, memory and where are the ones."""
    text = PROFILE + 'cpus = 2\nwhere = { rack = "r1" }\npod = { resources = { requests = { cpu = "8" } }, nodeSelector = { rack = "r2" } }'
    (profile,) = parse_config(text, "c").profiles
    assert (profile.cpus, profile.where) == (2, {"rack": "r1"})


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_a_template_may_not_set_is_refused_by_name(name: str) -> None:
    """With the reason, and where it is said instead."""
    said = refusal(f'{PROFILE}[profile.pod]\nimage = "x"\n{name} = "x"')
    assert said == f"conf.toml, line 5: pod: {name} may not be set here: {REFUSED[name]}"
    assert name not in FIELDS


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ('imagee = "x"', "imagee is unknown; did you mean 'image'?"),
        ("image = 5", "image = 5: expected a name in quotes"),
        ('resources = { limits = { "nvidia.com/gpu" = 1 } }', "resources.limits asks for nvidia.com/gpu; how many GPUs a pod has"),
        ('resources = { limits = { "nvidia.com/mig-1g.5gb" = 1 } }', "asks for nvidia.com/mig-1g.5gb"),
        ('resources = { requests = { cpu = "many" } }', "'many' is no amount; Kubernetes writes them like"),
        ('resources = { requests = { cpu = "-1" } }', "is below 0"),
        ("resources = { claims = [] }", "unknown field 'claims'"),
        ('env = [{ name = "A", value = 1 }]', "put 1 in quotes"),
        ('env = [{ name = "A" }]', "needs either a value or valueFrom"),
        ('env = [{ name = "GPUFAIR_X", value = "1" }]', "the scheduler's own"),
        ('env = [{ name = "NVIDIA_VISIBLE_DEVICES", value = "all" }]', "which GPUs a pod sees follows from what it was given"),
        ('envFrom = [{ secret = "x" }]', "needs one source: secretRef"),
        ('volumeMounts = [{ name = "data", mountPath = "/data" }]', "mounts 'data', which is not in volumes"),
        ('volumes = [{ name = "gpufair-tmp", emptyDir = {} }]', "names that begin with gpufair- are the scheduler's own"),
        ('volumes = [{ name = "a", emptyDir = {} }, { name = "a", emptyDir = {} }]', "two named 'a'"),
        ('volumes = [{ name = "a" }]', "needs one source"),
        ('volumes = [{ name = "a", emptyDri = {} }]', "unknown source 'emptyDri'; did you mean 'emptyDir'?"),
        ('volumes = [{ name = "a", emptyDir = { size = "1Gi" } }]', "it has an unknown field 'size'; did you mean 'sizeLimit'?"),
        ('volumes = [{ name = "a", secret = { secretName = "gpufair-tls" } }]', "the service's own, which no workload may read"),
        ('volumes = [{ name = "a", projected = { sources = [{ serviceAccountToken = { path = "t" } }] } }]', "workloads get no access to the cluster"),
        ('volumes = [{ name = "a", projected = { sources = [{ secret = { name = "gpufair-database" } }] } }]', "which no workload may read"),
        ('envFrom = [{ secretRef = { name = "gpufair-database" } }]', "which no workload may read"),
        ('env = [{ name = "A", valueFrom = { secretKeyRef = { name = "gpufair-tls", key = "tls.key" } } }]', "which no workload may read"),
        ('env = [{ name = "A", valueFrom = { secretRef = { name = "s" } } }]', "unknown field 'secretRef'; did you mean 'secretKeyRef'?"),
        ('env = [{ name = "PYTHONPATH", value = "/data" }]', "would break the agent in the pod"),
        ('env = [{ name = "PYTHONHOME", value = "/data" }]', "would break the agent in the pod"),
        ('volumes = [{ name = "a", emptyDir = {} }]\nvolumeMounts = [{ name = "a", mountPath = "//etc/gpufair" }]', "/etc/gpufair is the scheduler's own"),
        ('volumes = [{ name = "a", emptyDir = {} }]\nvolumeMounts = [{ name = "a", mountPath = "/dev" }]', "/dev is the system's own"),
        ('volumes = [{ name = "a", emptyDir = {} }]\nvolumeMounts = [{ name = "a", mountPath = "/x", subPath = "../.." }]', "without '..'"),
        ("securityContext = { runAsUsr = 5 }", "unknown field 'runAsUsr'; did you mean 'runAsUser'?"),
        ('securityContext = { runAsUser = "root" }', "it is an integer from 0"),
        ("securityContext = { runAsUser = 0 }", "say runAsNonRoot = false beside it if that is meant"),
        ("containerSecurityContext = { runAsUser = 0 }", "say runAsNonRoot = false beside it"),
        ('containerSecurityContext = { capabilities = { ad = ["A"] } }', "it has an unknown field 'ad'; did you mean 'add'?"),
        ('resources = { requests = { cpu = "9e99" } }', '"9e99" is more than any machine has'),
        ('resources = { requests = { memory = "9e30" } }', "is more than any machine has"),
        ('dnsPolicy = "None at all"', "expected one of ClusterFirst"),
        ('hostAliases = [{ ip = "10.0.0", hostnames = ["a"] }]', "which is no address"),
        ('volumes = [{ name = "a", emptyDir = {} }]\nvolumeMounts = [{ name = "a", mountPath = "/etc/gpufair/x" }]', "/etc/gpufair is the scheduler's own"),
        ('volumes = [{ name = "a", emptyDir = {} }]\nvolumeMounts = [{ name = "a", mountPath = "/etc" }]', "/etc/gpufair is the scheduler's own"),
        ('volumes = [{ name = "a", emptyDir = {} }]\nvolumeMounts = [{ name = "a", mountPath = "data" }]', "it is an absolute path"),
        ("containerSecurityContext = { privileged = true }", "sees every GPU of its node"),
        ('labels = { "gpufair.io/user" = "ada" }', "sets gpufair.io/user, which is the scheduler's own"),
        ('labels = { team = "a b" }', "no value of a label"),
        ('imagePullSecrets = ["registry"]', "has to be a table"),
        ('imagePullPolicy = "Sometimes"', "expected one of Always, IfNotPresent, Never"),
    ],
)
def test_mistakes_in_a_template(field: str, says: str) -> None:
    """Each would otherwise be a refusal by the cluster of every single pod, seen by a user who can't mend it."""
    said = refusal(f"{PROFILE}[profile.pod]\n{field}")
    assert says in said
    assert said.startswith("conf.toml, line ")


def test_root_is_meant_or_it_is_a_mistake() -> None:
    """Who says both gets it; the manual tells what it costs."""
    (profile,) = parse_config(f"{PROFILE}[profile.pod]\nsecurityContext = {{ runAsUser = 0, runAsNonRoot = false }}", "c").profiles
    assert profile.pod is not None
    assert profile.pod.pod["securityContext"] == {"runAsUser": 0, "runAsNonRoot": False}


def test_the_volume_with_everybodys_checkpoints_is_not_mounted_whole() -> None:
    """By whichever profile: its pods would read and write those of all users."""
    volume = 'volumes = [{ name = "all", persistentVolumeClaim = { claimName = "state" } }]'
    text = f'{POOL}claim = "state"\nclaim_path = "/var/lib/gpufair"\n{PROFILE}[profile.pod]\n{volume}\n'
    assert "the volume 'all' is the claim 'state' of [pool.kubernetes]" in refusal(text)
    assert len(parse_config(text.replace('"state" } }', '"data" } }'), "c").profiles) == 1


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    """Each pod is given a copy, and none could say why it doesn't reach the service."""
    conf = str(tmp_path / "conf.toml")
    for text in ("", "x", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"):
        (tmp_path / "ca.pem").write_text(text)
        assert "ca.pem, which holds no certificate" in refusal(f'{POOL}service_ca = "ca.pem"\n', conf)
    assert "which is not there" in refusal(f'{POOL}service_ca = "."\n', conf)


def test_addresses_that_no_pod_reaches() -> None:
    """They would each be found out by a pod that waits in vain."""
    for url in ("https://a b/", "https://gpufair.svc/a b", "https://", "gpufair:8443", "https://u@h/", "https://h:0"):
        assert "service_url has to be the address of this service" in refusal(POOL.replace("https://gpufair.gpufair.svc:8443/", url))


def test_namespaces_may_use_what_there_is(tmp_path: Path) -> None:
    """A misspelt allocation is told at once, not to each pod."""
    path = tmp_path / "gpufair.toml"
    path.write_text(POOL + '[pool.kubernetes.namespaces]\nspeech = ["defautl"]\n')
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.line == 9
    assert "\"defautl\" of namespace 'speech' is not a leaf of the budget tree; did you mean 'default'?" in str(caught.value)
    path.write_text(POOL + '[pool.kubernetes.namespaces]\nspeech = ["default"]\n')
    assert load_config(path).pools[0].kubernetes is not None


def test_a_template_in_a_file(tmp_path: Path) -> None:
    """As YAML or JSON, with the same fields; mistakes name the file."""
    fields = {"image": "lab/torch:2", "nodeSelector": {"a": "b"}, "resources": {"requests": {"memory": "1e9"}}}
    (tmp_path / "pod.json").write_text(json.dumps(fields))
    (tmp_path / "pod.yaml").write_text("image: lab/torch:2\nnodeSelector: {a: b}\nresources: {requests: {memory: 1e9}}\n")
    conf = str(tmp_path / "conf.toml")
    for name in ("pod.json", "pod.yaml"):
        (profile,) = parse_config(f'{PROFILE}pod = "{name}"', conf).profiles
        assert profile.pod is not None
        assert (profile.pod.image, profile.memory) == ("lab/torch:2", 10**9)
    (tmp_path / "bad.yaml").write_text("image: [\n")
    assert "bad.yaml: is not valid YAML (line 2)" in refusal(f'{PROFILE}pod = "bad.yaml"', conf)
    (tmp_path / "bad.json").write_text("{")
    assert "is not valid JSON" in refusal(f'{PROFILE}pod = "bad.json"', conf)
    (tmp_path / "list.yaml").write_text("- 1\n")
    assert "has to be a table of fields of a pod" in refusal(f'{PROFILE}pod = "list.yaml"', conf)
    (tmp_path / "name.yaml").write_text("nodeName: a\n")
    assert "name.yaml: nodeName may not be set here" in refusal(f'{PROFILE}pod = "name.yaml"', conf)
    assert "cannot be read: No such file" in refusal(f'{PROFILE}pod = "nowhere.yaml"', conf)
    assert "pod has to be a table" in refusal(f"{PROFILE}pod = 5", conf)


def documented(heading: str) -> str:
    """The first block of TOML after a text of the operators' manual."""
    text = OPERATORS.read_text(encoding="utf-8")
    return text[text.index(heading) :].split("```toml\n", 1)[1].split("```", 1)[0]


def test_the_manual_has_every_option(tmp_path: Path) -> None:
    """An operator copies from it: it is valid, has each option once, and tells the defaults that there really are."""
    write_files(tmp_path)
    (pool,) = parse_config(documented("### A pool in a Kubernetes cluster"), str(tmp_path / "conf.toml")).pools
    assert pool.kubernetes is not None
    plain = KubernetesOptions("", "")
    examples = {
        "image", "service_url", "service_ca", "kubeconfig", "context", "node_selector", "tolerations", "claim", "claim_path", "namespaces",
    }  # fmt: skip
    for one in fields(KubernetesOptions):
        given = getattr(pool.kubernetes, one.name) != getattr(plain, one.name)
        assert given is (one.name in examples), one.name
    known = re.search(r"known are (.+)$", refusal(POOL + "x = 1"))
    assert known is not None
    table = documented("### A pool in a Kubernetes cluster").split("[pool.kubernetes]")[1]
    assert [name for name in known[1].split(", ") if not re.search(rf"\b{name}\b", table)] == []


def test_the_manual_has_every_field_of_a_template() -> None:
    """And nothing that would be refused."""
    text = documented("What else the pods of a profile are like")
    (profile,) = parse_config(text, "c").profiles
    assert profile.pod is not None
    assert set(tomllib.loads(text)["profile"][0]["pod"]) == set(FIELDS)


def test_odd_types_never_become_a_traceback() -> None:
    """YAML gives numbers, lists and nulls where texts are meant."""
    oddities: tuple[object, ...] = (None, 5, "", [], [5], [[]], {"a": 5}, [{"name": 5}], [{}], True)
    for name in FIELDS:
        for odd in oddities:
            with contextlib.suppress(BadTemplate):
                pod_template({name: odd})
