"""What a submission becomes: profile, defaults, and what is said about what makes no sense."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpufair.core import events as ev
from gpufair.core.errors import InvalidSpec
from gpufair.core.model import Allocation, Policy, WorkloadSpec
from gpufair.core.state import State
from gpufair.core.units import HOUR, MINUTE, AllocationPath, CauseId, Instant, Millis
from gpufair.service.settings.config import Config
from gpufair.service.settings.pool_options import KUBERNETES, PoolConfig
from gpufair.service.settings.profile_options import Profile
from gpufair.service.settings.sizes import format_size, parse_size
from gpufair.service.workloads.pools import OneNodeOnly
from gpufair.service.workloads.submission import Wanted, spec_of

CONFIG = Config(
    profiles=(
        Profile("quick", "Quick", gpus=1, min_runtime=Millis(15 * MINUTE)),
        Profile("long", "Long", gpus=1, min_runtime=HOUR, expected=Millis(5 * HOUR)),
        Profile("own", "Own", gpus=1, min_runtime=Millis(15 * MINUTE), priority=0),
    )
)
STATE = State()
STATE.handle(ev.BudgetsApplied(Instant(0), CauseId("c"), (Allocation(AllocationPath("a")),)))
FACTS = STATE.facts


def asked(config: Config = CONFIG, **fields: object) -> WorkloadSpec:
    """What ada gets."""
    return spec_of(Wanted({"type": "kernel"}, **fields), "ada", config, FACTS)  # type: ignore[arg-type]  # by the test's word


def test_what_is_short_and_small_comes_first_in_its_allocation() -> None:
    """Who debugs waits for minutes otherwise; whoever names a priority has that one."""
    assert asked(profile="quick").priority == 10
    assert asked(profile="own").priority == 0
    assert asked(profile="quick", priority=3).priority == 3
    assert asked(profile="long").priority == 0
    assert asked(gpus=8, min_runtime_s=900.0).priority == 10
    # It is what is asked for that counts, not the profile it began with.
    assert asked(profile="quick", min_runtime_s=3600.0).priority == 0
    assert asked(profile="quick", gpus=9).priority == 0
    assert asked(profile="long", min_runtime_s=60.0).priority == 10
    assert asked(profile="quick", min_runtime_s=0.0).priority == 0
    off = replace(CONFIG, policy=Policy(debug_min_runtime=Millis(0)))
    assert asked(off, profile="quick").priority == 0


def test_how_long_it_needs_is_passed_on() -> None:
    """The preview and the warning for work that cannot resume go by it."""
    assert asked(profile="long").expected == 5 * HOUR
    assert asked(profile="long", expected_s=90.5).expected == 90_500
    assert asked(profile="quick").expected is None
    with pytest.raises(InvalidSpec, match="expected_s is below a millisecond"):
        asked(expected_s=0.0001)


@pytest.mark.parametrize(
    ("text", "size"), [("64GiB", 64 << 30), ("512 MB", 512 * 10**6), ("1.5tib", 3 << 39), ("0B", 0), ("7kB", 7000)]
)
def test_sizes(text: str, size: int) -> None:
    """Both families of units, exact."""
    assert parse_size(text) == size
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("value", [5, 1.5, "5", "", "GiB", "-1GiB", "5 GBit", "5g", True, None, [], "99999TB", "1e3MB"])
def test_what_is_no_size_is_refused(value: object) -> None:
    """A plain number most of all: 64 what?"""
    with pytest.raises(ValueError, match=r"512MB, 64GiB or 1\.5TiB"):
        parse_size(value)


def test_what_is_wanted_beside_gpus() -> None:
    """Of the profile unless it is said; in one order, so that equal wishes are equal."""
    big = Profile(
        "big", "Big", gpus=8, nodes=2, cpus=4, memory=1 << 30, within="rack", exclude=("n2",), where={"b": "2"}
    )
    config = replace(CONFIG, profiles=(big,))
    shape = asked(config, profile="big").shape
    assert (shape.cpus_per_node, shape.memory_per_node, shape.within) == (4, 1 << 30, "rack")
    assert (shape.exclude, shape.where) == (("n2",), (("b", "2"),))
    other = {"cpus": 0, "memory_bytes": 0, "within": "", "exclude": ("n3", "n1", "n3"), "where": {"b": "1", "a": "2"}}
    shape = asked(config, profile="big", **other).shape
    assert (shape.cpus_per_node, shape.memory_per_node, shape.within) == (0, 0, "")
    assert (shape.exclude, shape.where) == (("n1", "n3"), (("a", "2"), ("b", "1")))


def test_a_session_that_idles_for_an_hour_gives_its_gpus_back() -> None:
    """By default, unless its profile or its owner says otherwise; what has no cells never idles."""
    patient = Profile("patient", "Patient", gpus=1, idle_release=None)
    config = replace(CONFIG, profiles=(*CONFIG.profiles, patient))
    assert asked(profile="quick").idle_release == HOUR
    assert asked(gpus=1).idle_release == HOUR
    assert asked(config, profile="patient").idle_release is None
    assert asked(config, profile="patient", idle_release_s=600.0).idle_release == 600_000
    assert asked(profile="quick", idle_release_s=0.0).idle_release is None
    assert asked(profile="quick", kind="batch").idle_release is None
    # Who cannot be saved would lose everything by it, so only if he asks for it.
    assert asked(profile="quick", resumable=False).idle_release is None
    assert asked(profile="quick", resumable=False, idle_release_s=600.0).idle_release == 600_000
    assert asked(gpus=0).idle_release is None
    command = spec_of(Wanted({"type": "command"}, profile="quick"), "ada", CONFIG, FACTS)
    assert command.idle_release is None


def test_whether_it_may_be_moved_is_its_owners_word() -> None:
    """Of the profile unless it is said; never by default, since protection is what was asked for."""
    config = replace(CONFIG, profiles=(*CONFIG.profiles, Profile("light", "Light", gpus=1, movable=True)))
    assert not asked(profile="quick").movable
    assert asked(config, profile="light").movable
    assert not asked(config, profile="light", movable=False).movable
    assert asked(movable=True).movable


def test_a_kernel_is_kept_from_several_nodes_of_a_cluster() -> None:
    """It would be one pod there: GPUs of the other nodes would be paid for, used by nobody, and claimed by no pod."""
    kube, near = PoolConfig("kube", backend=KUBERNETES), PoolConfig("near")
    both, alone = replace(CONFIG, pools=(kube, near)), replace(CONFIG, pools=(kube,))
    said = "a kernel with GPUs of 2 nodes was asked for, but in pool 'kube', a Kubernetes cluster, a kernel is one pod on one node"
    with pytest.raises(OneNodeOnly, match=said):
        asked(both, gpus=1, nodes=2, pools=("near", "kube"))
    with pytest.raises(OneNodeOnly, match=r"run a program on each node \(`gpufair submit --nodes 2"):
        asked(alone, gpus=1, nodes=2)
    assert asked(both, gpus=1, nodes=2).pools == ("near",)
    assert set(asked(both, gpus=1).pools) == {"near", "kube"}
    program = Wanted({"type": "command"}, gpus=1, nodes=2, pools=("kube",))
    assert spec_of(program, "ada", both, FACTS).pools == ("kube",)
