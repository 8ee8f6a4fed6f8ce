"""Options of the policy: each one of the core is one of the file, documented with the default that it really has."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from gpufair.core.model import Hungry, Policy
from gpufair.service.settings.config import parse_config
from gpufair.service.settings.policy_options import options
from gpufair.service.settings.tables import ConfigError
from gpufair.service.storage.codec import policy_digest

OPERATORS = Path(__file__).parents[3] / "docs" / "operators.md"
ROW = re.compile(r"^\| `(\[(?:policy|grace)\] \w+)` \| `([^`]+)` \| (.+) \|$", re.MULTILINE)


def test_every_option_is_documented_with_its_default() -> None:
    """An operator chooses by this table: it lists what there is, in order, and nothing else."""
    rows = ROW.findall(OPERATORS.read_text())
    assert [(name, default) for name, default, _ in rows] == [(one.name, one.default) for one in options()]
    assert all(len(says) > 20 for _, _, says in rows)


def test_the_documented_defaults_are_the_defaults() -> None:
    """A file that spells all of them out means the same as an empty one; so each field is read, and read back exactly."""
    sections: dict[str, list[str]] = {}
    for one in options():
        sections.setdefault(one.section, []).append(f"{one.key} = {one.default}")
    text = "\n".join(f"[{section}]\n" + "\n".join(lines) for section, lines in sections.items())
    assert parse_config(text, "x").policy == Policy() == parse_config("", "x").policy
    assert {one.field for one in options()} == {one.name for one in fields(Policy)}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[policy]\ndebug_gpus = 1\ndebug_share = 1.5", 3, "debug_share of 1.5 is not a part of a pool"),
        ("[policy]\ndebug_min_runtime = '-1s'", 2, "no duration"),
        ("[policy]\ndebug_gpus = 2.5", 2, "expected an integer"),
        ("[policy]\ndebug_gpus = -1", 2, "out of range"),
        ("[policy]\ntake_limit = 'never'", 2, "expected a number"),
        ("[policy]\nhungry = 'metrics'", 2, "did you mean 'metric'"),
        ("[policy]\nblocks = ['rack', 'rack']", 2, "none empty and none twice"),
        ("[policy]\ngrace_session = '1m'", 2, "unknown key 'grace_session'"),
    ],
)
def test_what_the_core_refuses_has_its_line(text: str, line: int, says: str) -> None:
    """The core knows which values make sense, the file where they stand."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "conf.toml")
    assert str(caught.value).startswith(f"conf.toml, line {line}: ")
    assert says in str(caught.value)


def test_every_policy_can_be_journalled() -> None:
    """Each entry names the options by which it was decided, whatever types these have; equal options, one name."""
    weighted = "[policy.gpu_weights]\nh200 = 1.5\na100 = 1"
    assert dict(parse_config(weighted, "x").policy.gpu_weights) == {"a100": 1.0, "h200": 1.5}
    assert policy_digest(parse_config(weighted, "x").policy) == policy_digest(parse_config(weighted, "x").policy)
    assert policy_digest(parse_config(weighted, "x").policy) != policy_digest(Policy()) == policy_digest(Policy())
    with pytest.raises(ConfigError, match=r"line 2: h200 = -1 is out of range"):
        parse_config("[policy.gpu_weights]\nh200 = -1", "x")


def test_a_rule_that_may_be_left_out_is_off() -> None:
    """Named so that nobody has to guess which number means none."""
    policy = parse_config("[policy]\ntake_limit = 'off'\nhungry = 'entitlement'\nblocks = []", "x").policy
    assert (policy.take_limit, policy.hungry, policy.blocks) == (None, Hungry.ENTITLEMENT, ())
    assert parse_config("[policy]\ntake_limit = 3", "x").policy.take_limit == 3.0
