"""Whatever stands in a configuration of a cluster's pools is taken, or refused with its place; nothing else happens."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gpufair.core.units import SECOND, Millis, WorkloadId
from gpufair.service.backends.kubernetes import manifests
from gpufair.service.backends.kubernetes.names import PodKey
from gpufair.service.settings.config import parse_config
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from gpufair.service.settings.pod_storage import OUR_FOLDERS, SYSTEM_FOLDERS, inside, normal_path, overlap
from gpufair.service.settings.pod_template import FIELDS, BadTemplate, PodTemplate, pod_template
from gpufair.service.settings.tables import ConfigError

MANUAL = (Path(__file__).parents[2] / "docs" / "operators.md").read_text(encoding="utf-8")
PROFILE = '[[profile]]\nname = "p"\n'
OPTIONS = KubernetesOptions("lab/kernel:1", "https://gpufair.gpufair.svc:8443")
ORDER = manifests.PodOrder(
    PodKey(WorkloadId("w1"), 1, 0), "kube", "a", "ria", "run", "batch", "n1", "nvidia.com/gpu", 1, Millis(SECOND), "/var/lib/gpufair/r", ""
)  # fmt: skip
POOL_KEYS = sorted({*KubernetesOptions.__dataclass_fields__, "insecure"})


def documented(heading: str) -> Any:
    """The first block of TOML after a text of the manual."""
    return tomllib.loads(MANUAL[MANUAL.index(heading) :].split("```toml\n", 1)[1].split("```", 1)[0])


TEMPLATE = documented("What else the pods of a profile are like")["profile"][0]["pod"] | {
    "env": [{"name": "A", "value": "b"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    "containerSecurityContext": {"capabilities": {"add": ["SYS_PTRACE"]}, "runAsUser": 5},
    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, "supplementalGroups": [7]},
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "more", "projected": {"sources": [{"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}}]}},
        {"name": "host", "hostPath": {"path": "/data", "type": "Directory"}},
    ],
}
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["", "~", "~nobody/x", "/", "//etc//gpufair", "..", "gpufair-tls", "a b", "1e9", "9e99", "-1", "\0", "x" * 300, "x" * 5000]),
)
NUMBERS = st.one_of(st.integers(-2, 70_000), st.sampled_from([10**30, 10**400, -(1 << 64)]), st.floats())
PLAIN = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
YAML_ONLY = st.one_of(PLAIN, st.dates(), st.binary(max_size=3), st.sets(st.integers(), max_size=2))
FIELD_NAMES = st.sampled_from(["name", "value", "key", "path", "ip", "requests", "cpu", "operator", "secret", "a/b", "ca", "items"])


def values(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists and tables of them, too."""
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6)


ANY = values(YAML_ONLY, st.one_of(FIELD_NAMES, TEXTS, st.integers(), st.none(), st.dates(), st.booleans()))
OF_TOML = values(st.one_of(st.booleans(), NUMBERS, TEXTS, st.dates()), st.one_of(FIELD_NAMES, TEXTS))


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places in a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(found for key, one in inner for found in places(one, (*at, key)))]


PLACES = [place for place in places(TEMPLATE) if place]


def changed(place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The template with another value in one place."""
    made = copy.deepcopy(TEMPLATE)
    holder = made
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    return dict(made)


def judged(template: object) -> None:
    """It makes a pod that JSON can say, or is refused with words."""
    try:
        made = pod_template(template)
    except BadTemplate as err:
        if not err.why:
            raise AssertionError("it was refused without a word") from err
    else:
        usable(made)


def usable(made: PodTemplate) -> None:
    """A pod comes of it, with nothing mounted over what is ours."""
    pod = manifests.pod(ORDER, OPTIONS, made)
    json.dumps(pod, allow_nan=False)
    for mount in made.container.get("volumeMounts", []):
        assert not any(overlap(mount["mountPath"], ours) for ours in OUR_FOLDERS)


@given(st.sampled_from(PLACES), ANY)
@example(("labels",), {5: "x"})
@example(("resources", "requests"), {5: "1"})
@example(("resources", "requests", "cpu"), "9e99")
@example(("labels",), {date(2026, 1, 1): "x"})
def test_a_template_with_one_thing_wrong(place: tuple[Any, ...], value: Any) -> None:
    """Deep inside as well: types that only YAML has, numbers without end, names that are no names."""
    judged(changed(place, value))


@given(ANY)
def test_anything_as_a_template(value: Any) -> None:
    """It need not be a table, nor finite."""
    judged(value)


@given(st.sampled_from(PLACES), st.one_of(FIELD_NAMES, TEXTS, st.integers()), ANY)
def test_a_template_with_one_field_too_many(place: tuple[Any, ...], name: Any, value: Any) -> None:
    """A field that is misspelt is told, not passed over."""
    made = changed(place, value)
    holder: Any = made
    for key in place:
        holder = holder[key]
    if isinstance(holder, dict):
        with contextlib.suppress(TypeError):
            holder[name] = value
    judged(made)


def test_a_template_that_holds_itself() -> None:
    """YAML can say that, by an alias."""
    loop: list[Any] = []
    loop.append(loop)
    judged({"env": loop})
    judged({"dnsConfig": {"nameservers": loop}})


@pytest.mark.parametrize(
    "text",
    [
        "!!int ''", "!!float ''", "!!timestamp x", "!!bool maybe", "image: !!python/object:os.system x", "? [a]\n: b", "&a [*a]",
        "labels: {5: x}", "resources: {requests: {5: 1}}", "image: 0x" + "f" * 5000, "image: " + "1" * 5000, "image: 2026-99-99",
        "labels: {a: 2026-01-01}", "volumes: &a [*a]", "\x00", "a: b: c", "[" * 3000, "- !!set {a}", "labels: {? {} : b}", "",
        "labels: {<<: {b: 5}}", "labels: {<<: 5}", "image: .inf",
    ],
)  # fmt: skip
def test_odd_yaml_is_refused_by_name(text: str, tmp_path: Path) -> None:
    """With the key, the line and the file; PyYAML has no error of its own for some of these."""
    (tmp_path / "pod.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        parse_config(f'{PROFILE}pod = "pod.yaml"', str(tmp_path / "conf.toml"))
    assert caught.value.line == 3
    assert caught.value.message.startswith("pod = ")
    assert "pod.yaml" in caught.value.message


@given(st.sampled_from(PLACES), ANY)
def test_a_template_as_yaml_is_judged_alike(tmp_path_factory: pytest.TempPathFactory, place: tuple[Any, ...], value: Any) -> None:
    """What the file says is refused with the line that names it."""
    try:
        text = yaml.safe_dump(changed(place, value))
    except (ValueError, TypeError, yaml.YAMLError):
        return  # PyYAML writes no such keys and numbers
    folder = tmp_path_factory.getbasetemp()
    (folder / "pod.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
    accepted(f'{PROFILE}pod = "pod.yaml"', str(folder / "conf.toml"), 3)


def toml(value: Any) -> str:
    """A value as TOML has it, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(one) for one in value) + "]"
    if isinstance(value, str):
        return json.dumps(value.encode("utf-8", "ignore").decode(), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(value) if math.isfinite(value) else "nan" if math.isnan(value) else "inf"
    if isinstance(value, int):
        return hex(value) if value > 1 << 64 else str(value)
    return str(value)


def accepted(text: str, file: str, *lines: int) -> None:
    """The configuration is valid, or refused at one of these lines."""
    refused = None
    with contextlib.suppress(ConfigError):
        try:
            parse_config(text, file)
        except ConfigError as err:
            refused = err
            raise
    assert refused is None or (refused.message and refused.line in lines), refused


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000])
@pytest.mark.parametrize("key", ["requests_per_s", "tunnel_ports", "claim", "gpus", "cpu_nodes", "lease_for", "namespaces", "tolerations"])
def test_a_number_that_python_does_not_write(key: str, number: str) -> None:
    """Four thousand digits are its bound, for reading as for saying what is wrong."""
    head = '[[pool]]\nname = "c"\nbackend = "kubernetes"\n[pool.kubernetes]\nimage = "i"\nservice_url = "https://s:1"\n'
    with pytest.raises(ConfigError, match=r"thousands of digits|has to be a table|expected|needs"):
        parse_config(f"{head}{key} = {number}\n", "/nowhere/conf.toml")
    with pytest.raises(ConfigError):
        parse_config(f"{PROFILE}gpus = {number}\n", "/nowhere/conf.toml")
    with pytest.raises(ConfigError):
        parse_config(f"[policy]\nover_time = {number}\n[sessions]\nsuggest_cpu_after = {number}\n[checkpoints]\nafter_cells = {number}", "c")


@given(st.sampled_from(POOL_KEYS), OF_TOML)
@example("tunnel_ports", 10**400)
@example("requests_per_s", 10**400)
@example("kubeconfig", "~nobody-at-all/x")
@example("service_ca", "x" * 4000)
@example("lease", "a..b")
def test_anything_as_an_option_of_a_pool(key: str, value: Any) -> None:
    """Each option takes what it can, and says of all else what it is, in its line."""
    good = {"image": "lab/kernel:1", "service_url": "https://gpufair.gpufair.svc:8443", "claim": "state", "claim_path": "/var/lib/gpufair"}
    options = {name: toml(one) for name, one in good.items()} | {key: toml(value)}
    head = '[[pool]]\nname = "c"\nbackend = "kubernetes"\n[pool.kubernetes]\n'
    at = len(head.splitlines()) + 1 + list(options).index(key)
    text = head + "".join(f"{name} = {one}\n" for name, one in options.items())
    accepted(text, "/nowhere/conf.toml", at)


@given(st.sampled_from(sorted(FIELDS)), OF_TOML)
def test_anything_as_a_field_in_the_profile(key: str, value: Any) -> None:
    """The same for a template that stands in the configuration itself."""
    # A volume that nothing mounts is fine; a mount of no volume is told where it is.
    accepted(f"{PROFILE}[profile.pod]\n{key} = {toml(value)}\n", "/nowhere/conf.toml", 4)


@given(st.lists(st.sampled_from(["", ".", "etc", "gpufair", "gpufairx", "dev", "shm", "tmp", "run", "data", "proc"]), min_size=1, max_size=5))
def test_a_folder_is_known_by_whatever_name(parts: list[str]) -> None:
    """Slashes too many and dots do not lead into the scheduler's or the system's own folders."""
    path = "/" + "/".join(parts)
    plain = [part for part in parts if part not in {"", "."}]
    assert normal_path(path) == "/" + "/".join(plain)
    template = {"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": path}]}
    ours = not plain or plain[0] in {"tmp", "proc"} or (plain[0] == "dev" and plain != ["dev", "shm"])
    ours = ours or plain in (["etc"], ["run"]) or plain[:2] in (["etc", "gpufair"], ["run", "gpufair"])
    assert ours == (not plain or any(overlap(path, one) for one in OUR_FOLDERS) or (any(inside(path, one) for one in SYSTEM_FOLDERS) and plain != ["dev", "shm"]))
    if ours:
        with pytest.raises(BadTemplate):
            pod_template(template)
    else:
        pod_template(template)
