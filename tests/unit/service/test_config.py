"""A wrong configuration is refused with its file, its line, what was given and what is allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpufair.core.model import Kind, Policy
from gpufair.core.units import DAY, HOUR, MINUTE, SECOND, Millis
from gpufair.service.identity.auth import Principal, Role
from gpufair.service.problems import Forbidden
from gpufair.service.serve import EXIT_FAILED, run
from gpufair.service.settings.config import Config, find_config, load_config, parse_config
from gpufair.service.settings.durations import format_duration, parse_duration
from gpufair.service.settings.tables import ConfigError
from gpufair.service.settings.toml_source import TomlSource

GOOD = """\
users = ["ada", "bo"]
operators = ["root-op"]

[service]
host = "127.0.0.1"
port = 8899
linger = "until idle"  # a comment with = and [brackets]
snapshot_every = 5

[policy]
window = "7d"
max_min_runtime = "8h"
hysteresis = 0.05
grid = "10s"
grid_checkpoint = "5s"

[grace]
session = "90s"
batch = "15s"

[[node]]
name = "alpha"
gpus = 4
gpu_type = "a100"
labels = { rack = "r1" }
cpus = 32
memory = "64GiB"

[[node]]
name = "beta"
gpus = "auto"
pool = "second"

[[profile]]
name = "debug"
display_name = "Debug (1 GPU)"
gpus = 1
min_runtime = "15m"
grace = "5s"
priority = 10
idle_release = "off"

[[profile]]
name = "train"
gpus = 8
nodes = 2
kind = "batch"
expected = "2d"
cpus = 16
memory = "128GiB"
within = "rack"
exclude = ["beta"]
where = { disk = "fast" }
"""


def test_budget_owners_are_users_with_a_right_of_their_own() -> None:
    """Named like users, of the whole tree; or each with what they own; nobody by default."""
    assert parse_config('budget_owners = ["uma", "ada"]', "gpufair.toml").budget_owners == {"uma": ("",), "ada": ("",)}
    assert parse_config("", "gpufair.toml").budget_owners == {}
    text = '[budget_owners]\numa = ["language", "vision/robots"]\nada = ["*"]'
    assert parse_config(text, "gpufair.toml").budget_owners == {"uma": ("language", "vision/robots"), "ada": ("",)}
    for wrong in (
        'budget_owners = ["no name"]',
        'budget_owners = {"no name" = ["a"]}',
        'budget_owners = {uma = ["a//b"]}',
    ):
        with pytest.raises(ConfigError, match=r"budget_owners|is no user name|is no path"):
            parse_config(wrong, "gpufair.toml")


def test_who_owns_an_allocation_divides_it_and_no_more() -> None:
    """Its own share is at the cost of its siblings, so it is somebody else's to decide."""
    uma = Principal(Role.USER, "uma", ("language",))
    assert [
        path for path in ("language", "language/speech", "language/speech/x", "languages/x") if uma.divides(path)
    ] == [
        "language/speech",
        "language/speech/x",
    ]
    assert uma.plans
    assert Principal(Role.USER, "ada", ("",)).divides("language")
    assert Principal(Role.OPERATOR, "olga").divides("language")
    assert not Principal(Role.USER, "bo").divides("language/speech")
    uma.require_divider(["language/speech"])
    with pytest.raises(Forbidden, match="the share of 'vision' is decided by who owns the whole tree or an operator"):
        uma.require_divider(["language/speech", "vision"])
    with pytest.raises(Forbidden, match="'vision/x' is decided by who owns 'vision'"):
        uma.require_divider(["vision/x"])


def test_a_full_file_is_read() -> None:
    """Every section arrives where it belongs."""
    config = parse_config(GOOD, "gpufair.toml")
    assert config.users == ("ada", "bo")
    assert config.operators == ("root-op",)
    assert config.service.linger is None
    assert (config.service.port, config.service.snapshot_every) == (8899, 5)
    assert config.policy == Policy(
        window=Millis(7 * DAY),
        max_min_runtime=Millis(8 * HOUR),
        hysteresis=0.05,
        grid=Millis(10 * SECOND),
        grid_checkpoint=Millis(5 * SECOND),
        grace_session=Millis(90 * SECOND),
        grace_batch=Millis(15 * SECOND),
    )
    alpha, beta = config.nodes
    assert (alpha.gpus, alpha.gpu_type, alpha.labels) == (4, "a100", {"rack": "r1"})
    assert (alpha.cpus, alpha.memory) == (32, 64 << 30)
    assert (beta.gpus, beta.pool, beta.cpus, beta.memory) == (None, "second", None, None)
    debug, train = config.profiles
    assert (debug.min_runtime, debug.grace, debug.priority) == (15 * MINUTE, 5 * SECOND, 10)
    assert (train.cpus, train.memory, train.within, train.exclude) == (16, 128 << 30, "rack", ("beta",))
    assert train.where == {"disk": "fast"}
    assert (debug.idle_release, train.idle_release) == (None, HOUR)
    assert (debug.expected, train.expected, train.priority) == (None, 2 * DAY, None)
    assert (train.kind, train.nodes, train.display_name) == (Kind.BATCH, 2, "train")


def test_the_checkpoint_store_has_rules() -> None:
    """What the kernels are told of it is what they take."""
    from gpufair.node.checkpoint import StoreOptions
    from gpufair.service.settings.config import parse_config

    def options(lines: str) -> StoreOptions:
        return StoreOptions.from_dict(parse_config(f"[checkpoints]\n{lines}", "t").checkpoint_store)

    assert options("") == StoreOptions()
    text = 'encryption = true\nsession_limit = "2 GiB"\nuser_limit = "10 GiB"\nkeep = 5\nkeep_for = "7d"\ncompression = "never"'
    assert options(text) == StoreOptions("never", True, 2 << 30, 10 << 30, 5, 7 * 86_400.0)


def test_the_journal_may_be_in_postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its password is where no log and no child process finds it."""
    assert parse_config("", "g.toml").store.place(tmp_path).url == f"sqlite:///{tmp_path}/journal.sqlite"
    text = '[store]\nurl = "postgresql://gpufair@db/gpufair"\npassword_'
    monkeypatch.setenv("DB_PASSWORD", "hush")
    place = parse_config(text + 'env = "DB_PASSWORD"', "g.toml").store.place(tmp_path)
    assert "DB_PASSWORD" not in os.environ
    (tmp_path / "db.password").write_text("hush\n")
    other = parse_config(text + 'file = "db.password"', str(tmp_path / "g.toml")).store.place(tmp_path)
    for one in (place, other):
        assert one.password is not None
        assert one.password() == "hush"
        assert "hush" not in one.shown + repr(one)


def test_when_unused_gpus_are_worth_a_word() -> None:
    """Two hours unless it is said otherwise; and which files tell that GPUs are used."""
    assert parse_config("", "t").suggest_cpu_after == 2 * HOUR
    assert parse_config('[sessions]\nsuggest_cpu_after = "30m"\n', "t").suggest_cpu_after == 30 * MINUTE
    for off in ('"off"', '"0s"'):
        assert parse_config(f"[sessions]\nsuggest_cpu_after = {off}\n", "t").suggest_cpu_after == 0
    node = parse_config('[[node]]\nname = "a"\ngpus = 1\ndevice_files = ["/dev/kfd"]\n', "t").nodes[0]
    assert node.device_files == ("/dev/kfd",)


def test_checkpoints_may_lie_behind_a_url() -> None:
    """What needs no library is taken as it is; nothing that a URL hides is ever repeated."""

    def url(text: str) -> str:
        return parse_config(f"[checkpoints]\nurl = '{text}'", "t").checkpoint_url

    assert parse_config("[checkpoints]", "t").checkpoint_url == ""
    assert url("file:///mnt/shared/checkpoints/") == "file:///mnt/shared/checkpoints"
    for hidden in ("s3://me:hidden@lab/x", "s3://lab/x?secret=hidden", "s3://lab/x#hidden"):
        with pytest.raises(ConfigError, match="environment or the configuration files") as caught:
            url(hidden)
        assert "hidden" not in str(caught.value)


def test_a_url_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named; where it is installed nothing is asked of the store."""
    from gpufair.node.checkpoint import remote

    def get(scheme: str) -> object:
        raise ImportError(f"Install the library of {scheme}")

    monkeypatch.setattr(remote, "_with_obstore", lambda url: {})
    monkeypatch.setattr("fsspec.get_filesystem_class", get)
    with pytest.raises(ConfigError, match=r"line 2: url: .*s3:// is not installed: pip install .*object-stores"):
        parse_config("[checkpoints]\nurl = 's3://lab/x'", "t")
    with pytest.raises(ConfigError, match=r"Install the library of sftp"):
        parse_config("[checkpoints]\nurl = 'sftp://lab/x'", "t")


def test_without_a_file_a_laptop_works() -> None:
    """One GPU node, one CPU node, one leaf, two profiles."""
    config = load_config(None)
    assert [(node.name, node.gpus, node.fallback_gpus) for node in config.nodes] == [("local", None, 2), ("cpu", 0, 0)]
    assert config.budgets.leaves == ("default",)
    assert [(profile.name, profile.gpus, profile.min_runtime) for profile in config.profiles] == [
        ("1gpu", 1, HOUR),
        ("cpu", 0, 0),
    ]


BAD = [
    ('[store]\nurl = "postgresql://a:secret@db/gpufair"', 2, ["password_file", "password_env"]),
    ('[store]\nurl = "postgresql://a@db/gpufair?password=secret"', 2, ["password_file"]),
    ('[store]\nurl = "mysql://db/gpufair"', 2, ["postgresql://"]),
    ('[store]\nurl = "db"', 2, ["postgresql://"]),
    ('[store]\npassword_env = "X"', 1, ["no url"]),
    ("[policy]\nwindw = '7d'", 2, ["windw", "did you mean 'window'"]),
    ("[policy]\nwindow = 7", 2, ["7", "no unit", '"7s"']),
    ("[policy]\nwindow = '7'", 2, ["no unit"]),
    ("[policy]\n\nwindow = '7 weeks'", 3, ["7 weeks", "7d"]),
    ("[policy]\nwindow = '0s'", 2, ["out of range", "365d"]),
    ("[policy]\nhysteresis = 1.5", 2, ["1.5", "0 to 0.99"]),
    ("[policy]\nhysteresis = nan", 2, ["out of range"]),
    ("[policy]\nbanking = 1.25", 2, ["banking", "0 to 1"]),
    ("[policy]\nwindow = '1h'\nmax_min_runtime = '2h'", 3, ["longer than"]),
    ("[policy]\ncommitment = 1", 2, ["true or false"]),
    ("[service]\nport = 70000", 2, ["70000", "0 to 65535"]),
    ("[service]\nport = '80'", 2, ['"80"', "integer"]),
    ("[service]\nlinger = 15", 2, ["until idle"]),
    ("[service]\nlinger = 'forever'", 2, ["forever"]),
    ("[service]\nhost = ''", 2, ["127.0.0.1"]),
    ("[grace]\nsession = '2m'\nsesion = '2m'", 3, ["sesion", "did you mean 'session'"]),
    ("# x\n[[node]]\nname = 'a'\ngpus = 'many'", 4, ["many", '"auto"']),
    ("[[node]]\nname = 'a'\ngpus = -1", 3, ["-1", "0 to 1024"]),
    ("[[node]]\nname = 'a'\n[[node]]\nname = 'a'", 4, ["already", "'a'"]),
    ("[[node]]\ngpus = 1", 1, ["has no name"]),
    ("[[node]]\nname = '../x'", 2, ["../x", "letters"]),
    ("[[node]]\nname = 'a'\nlabels = {x = 1}", 3, ["table of strings"]),
    ("[[node]]\nname = 'a'\nmemory = 64", 3, ["64", "no unit", '"64GiB"']),
    ("[[node]]\nname = 'a'\nmemory = '64 gigs'", 3, ["64 gigs", "1.5TiB"]),
    ("[[node]]\nname = 'a'\ncpus = 0.5", 3, ["0.5", "integer"]),
    ("[[profile]]\nname = 'p'\nwhere = {rack = 1}", 3, ["table of strings"]),
    ("[[profile]]\nname = 'p'\nidle_release = 'never'", 3, ["never", "30s"]),
    ("[[profile]]\nname = 'p'\nexclude = ['a b']", 3, ["a b", "no name of a node"]),
    ("[[profile]]\nname = 'p'\nexpected = '0s'", 3, ["out of range"]),
    ("[node]\nname = 'a'", 1, ["[[node]]"]),
    ("[[profile]]\nname = 'p'\nmin_runtime = '9h'", 3, ["9h", "8h"]),
    ("[[profile]]\nname = 'p'\nkind = 'sesion'", 3, ["session, batch", "did you mean 'session'"]),
    (
        '[service]\ndatabase = """\n[x]\ny = 1\n"""\n[[profile]]\nname = "p"\ngpu = 1',
        8,
        ["unknown key 'gpu'"],
    ),
    ('budgets = "b.toml"\nusers = [ # ]\n "a", # x = 1\n]\n[[profile]]\nname = "p"\ngpu = 1', 7, ["unknown key 'gpu'"]),
    ('[[profile]]\nname = "p"\ndisplay_name = "a]b # c"\ngpu = 1', 4, ["'gpu'", "did you mean 'gpus'"]),
    ("users = ['ada', 'ada']", 1, ["twice"]),
    ("users = 'ada'", 1, ["list of strings"]),
    ("x = 1", 1, ["unknown key 'x'"]),
    ("[[node]]\nname='a'\ngpus='auto'\n[[node]]\nname='b'\ngpus='auto'", 6, ["auto", "same real GPUs"]),
    ("[policy]\nwindow = ", 2, ["not valid TOML"]),
    ("[policy\n", 1, ["not valid TOML"]),
    ("[policy]\nwindow = 7d", 2, ["not valid TOML", 'write 7d in quotes: "7d"']),
    ("users = ['ada']\nbudgets = b.toml # mine", 2, ['write b.toml in quotes: "b.toml"']),
    ("budgets = ''", 1, ["budgets.toml"]),
    ("[sessions]\nsuggest_cpu_after = 2", 2, ["2", "30s"]),
    ("[sessions]\nsuggest = '2h'", 2, ["unknown key 'suggest'", "suggest_cpu_after"]),
    ("[[node]]\nname = 'a'\ndevice_files = '/dev/kfd'", 3, ["list of strings"]),
    ("[checkpoints]\nurl = 'bucket/x'", 2, ["no URL", "s3://bucket/prefix"]),
    ("[checkpoints]\nurl = ''", 2, ["no URL"]),
    ("[checkpoints]\nurl = 's3:///x'", 2, ["no bucket"]),
    ("[checkpoints]\nurl = 's3://b/*'", 2, ["wildcards"]),
    ("[checkpoints]\nurl = 's3://b/../x'", 2, ["'..'"]),
    ("[checkpoints]\nurl = 'file://x/y'", 2, ["file:///folder"]),
    ("[checkpoints]\nurl = 'memory://x'", 2, ["not shared"]),
    ("[checkpoints]\nurl = 'foo://x/y'", 2, ["no kind of store"]),
    ("[checkpoints]\nurl = 'https://x/y'", 2, ["only be read"]),
]


@pytest.mark.parametrize(("text", "line", "words"), BAD)
def test_a_bad_file_names_line_and_remedy(text: str, line: int, words: list[str]) -> None:
    """Whoever reads the error can mend the file without the manual."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "conf.toml")
    sentence = str(caught.value)
    assert sentence.startswith(f"conf.toml, line {line}: "), sentence
    for word in words:
        assert word in sentence


def test_the_budgets_file_is_beside_the_config(tmp_path: Path) -> None:
    """Where the command was run from does not matter."""
    (tmp_path / "b.toml").write_text("[[allocation]]\npath = 'team/a'\n")
    (tmp_path / "gpufair.toml").write_text("budgets = 'b.toml'\n[[profile]]\nname = 'x'\nallocation = 'team/b'\n")
    with pytest.raises(ConfigError, match=r"line 4: .*team/b.*did you mean 'team/a'"):
        load_config(tmp_path / "gpufair.toml")
    (tmp_path / "gpufair.toml").write_text("users = []\nbudgets = 'c.toml'\n")
    with pytest.raises(ConfigError, match=r"gpufair.toml, line 2: budgets names .*c.toml, which is not there"):
        load_config(tmp_path / "gpufair.toml")
    # As some editors write it: with a byte order mark.
    (tmp_path / "gpufair.toml").write_text("budgets = 'b.toml'\n", encoding="utf-8-sig")
    (tmp_path / "b.toml").write_text("[[allocation]]\npath = 'team/a'\n", encoding="utf-8-sig")
    config = load_config(tmp_path / "gpufair.toml")
    assert config.budgets.leaves == ("team/a",)
    assert config.budgets_file == tmp_path / "b.toml"


def test_places_are_searched_in_order(tmp_path: Path) -> None:
    """--config, then the variable, then XDG; a named file that isn't there is an error, not a default."""
    named, home = tmp_path / "named.toml", tmp_path / "xdg"
    (home / "gpufair").mkdir(parents=True)
    xdg = home / "gpufair" / "gpufair.toml"
    named.touch()
    xdg.touch()
    assert find_config(named, {"GPUFAIR_CONFIG": str(xdg)}) == named
    assert find_config(None, {"GPUFAIR_CONFIG": str(named), "XDG_CONFIG_HOME": str(home)}) == named
    assert find_config(None, {"XDG_CONFIG_HOME": str(home)}) == xdg
    with pytest.raises(ConfigError, match="no such file"):
        find_config(tmp_path / "absent.toml", {})


def test_a_huge_or_binary_file_is_refused(tmp_path: Path) -> None:
    """A wrong path given by mistake must not fill memory."""
    (tmp_path / "big.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigError, match="larger than"):
        load_config(tmp_path / "big.toml")
    (tmp_path / "bin.toml").write_bytes(b"a = 1\n\xff\xfe")
    with pytest.raises(ConfigError, match=r"line 2: is not UTF-8"):
        load_config(tmp_path / "bin.toml")


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("30s", 30_000),
        ("15m", 900_000),
        ("8h", 28_800_000),
        ("7d", 604_800_000),
        ("1.5s", 1500),
        (" 2 m ", 120_000),
        ("250ms", 250),
    ],
)
def test_durations(text: str, span: int) -> None:
    """Units people use, exact."""
    assert parse_duration(text) == span
    assert parse_duration(format_duration(parse_duration(text))) == span


@pytest.mark.parametrize(
    "value", [5, 5.5, "5", "", "s", "-5s", "1e3s", "5 years", True, None, [], "9" * 400 + "s", "0.0001ms"]
)
def test_what_is_no_duration_is_refused(value: object) -> None:
    """A plain number most of all: 15 what?"""
    with pytest.raises(ValueError, match="30s, 15m, 8h or 7d"):
        parse_duration(value)


def test_lines_are_found_whatever_the_style() -> None:
    """Quoted keys, dotted keys, multi-line strings and arrays don't lead the locator astray."""
    source = TomlSource(
        'a.b = 1\n"c d" = """\n[not]\nx = 1\n"""\narr = [\n 1, # ]\n 2,\n]\n[t."u v"]\nk = \'#\'\n[[t.w]]\n[[t.w]]\nz = {y = 1}\n[t.w.deep]\nq = 1\n'
    )
    assert source.line(("a", "b")) == 1
    assert source.line(("c d",)) == 2
    assert source.line(("arr",)) == 6
    assert source.line(("t", "u v", "k")) == 11
    assert source.line(("t", "w", 1, "z")) == 14
    assert source.line(("t", "w", 1, "z", "y")) == 14
    assert source.line(("t", "w", 1, "deep", "q")) == 16


def test_default_config_is_valid_without_nodes() -> None:
    """The bare dataclass is what tests build on."""
    assert Config().budgets.leaves == ("default",)


def test_a_state_folder_that_cannot_be_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not a bare number of an error."""
    (tmp_path / "gpufair.toml").write_text("")
    (tmp_path / "file").write_text("")
    assert run(tmp_path / "gpufair.toml", tmp_path / "file" / "state") == EXIT_FAILED
    said = capsys.readouterr().err
    assert f"gpufair serve: the state folder {tmp_path / 'file' / 'state'} cannot be used: " in said
    assert "--state-dir" in said


def test_a_remote_node_says_itself_what_it_has() -> None:
    good = '[[node]]\nname = "far"\nremote = true\npool = "big"\nlabels = {rack = "r1"}\n'
    (node,) = parse_config(good, "f.toml").nodes
    assert (node.remote, node.pool, node.labels) == (True, "big", {"rack": "r1"})
    for key, value in (("gpus", '"auto"'), ("cpus", "4"), ("memory", '"1GiB"'), ("device_files", '["/dev/x"]')):
        with pytest.raises(ConfigError, match=f"{key}: the agent of a remote node says"):
            parse_config(good + f"{key} = {value}\n", "f.toml")
