"""The service's configuration: ``gpufair.toml``, checked as a whole before anything starts.

Looked up at ``--config``, ``$GPUFAIR_CONFIG``, ``$XDG_CONFIG_HOME/gpufair/gpufair.toml``, ``/etc/xdg/gpufair/gpufair.toml``;
with none of them the defaults suit a laptop. An error names the file, the line, what was given and what is allowed.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path

from gpufair.core.model import Allocation, Policy
from gpufair.core.units import HOUR, MINUTE, SECOND, AllocationPath, Millis
from gpufair.service.settings.budgets import WHOLE_TREE, Budgets, read_budgets
from gpufair.service.settings.cpu_pool_options import CpuPoolOptions, read_cpu_pool
from gpufair.service.settings.hub_options import HubOptions, read_hub
from gpufair.service.settings.node_options import DEFAULT_NODES, MAX_NODES, NodeConfig, read_node, refuse_two_autos
from gpufair.service.settings.notification_options import NotificationOptions, read_notifications
from gpufair.service.settings.policy_options import OFF, YEAR, read_policy
from gpufair.service.settings.pool_options import (
    PoolConfig,
    read_pool,
    refuse_mounted_state,
    refuse_unknown_allocations,
    refuse_unknown_pools,
)
from gpufair.service.settings.profile_options import DEFAULT_PROFILES, Profile, read_profile
from gpufair.service.settings.store_options import StoreOptions, read_store
from gpufair.service.settings.tables import NAME, ConfigError, Table, hint, shown
from gpufair.service.settings.tls_options import TlsOptions, read_tls
from gpufair.service.settings.toml_source import TomlSource, TomlSyntaxError

MAX_CONFIG_BYTES = 1 << 20
AUTOSAVE_SHARE = 0.05  # of the time, for checkpoints after cells
SUGGEST_CPU_AFTER = Millis(2 * HOUR)
UNTIL_IDLE = "until idle"
ALL = "*"  # of the budget tree


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How the service runs. ``linger`` None: until no session is busy."""

    host: str = "127.0.0.1"
    port: int = 0  # 0 = any free one
    linger: Millis | None = Millis(15 * MINUTE)
    agent_silence: Millis = Millis(30 * SECOND)  # a node is lost after that
    snapshot_every: int = 1000  # events
    requests_per_s: int = 100  # of one token, in the long run; 0: any number
    wrong_tokens_per_minute: int = 30  # of one address; 0: any number
    proxies: tuple[str, ...] = ()  # whose word on the address of a caller counts
    insecure: bool = False  # without TLS on an address that other machines reach
    names: tuple[str, ...] = ()  # under which a proxy on this machine asks, besides loopback ones


@dataclass(frozen=True, slots=True)
class Config:
    """All options. ``users`` empty: anybody the operator names. ``source`` None: no file was found."""

    service: ServiceOptions = ServiceOptions()
    store: StoreOptions = field(default_factory=StoreOptions)
    policy: Policy = field(default_factory=Policy)
    nodes: tuple[NodeConfig, ...] = ()
    pools: tuple[PoolConfig, ...] = ()
    profiles: tuple[Profile, ...] = ()
    users: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    auditors: tuple[str, ...] = ()  # see everything, change nothing
    # Who may try budgets on the live state, and decide how these allocations are divided (WHOLE_TREE: all of it).
    budget_owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=lambda: Budgets((Allocation(AllocationPath("default")),)))
    autosave_share: float = AUTOSAVE_SHARE
    checkpoint_store: Mapping[str, object] = field(default_factory=dict)  # fields of the node's ``StoreOptions``
    checkpoint_url: str = ""  # where checkpoints are kept; empty: in the state folder
    suggest_cpu_after: Millis = SUGGEST_CPU_AFTER  # sessions whose GPUs nobody touched for so long; 0: never
    cpu_pool: CpuPoolOptions = field(default_factory=CpuPoolOptions)
    notifications: NotificationOptions = field(default_factory=NotificationOptions)
    hub: HubOptions = field(default_factory=HubOptions)
    tls: TlsOptions = field(default_factory=TlsOptions)
    budgets_file: Path | None = None
    source: Path | None = None


def find_config(explicit: str | os.PathLike[str] | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The configuration file to read; None: there is none, the defaults hold.

    Raises:
        ConfigError: One was named (``--config`` or ``$GPUFAIR_CONFIG``) and isn't there.
    """
    for how, named in (("--config", explicit), ("$GPUFAIR_CONFIG", environ.get("GPUFAIR_CONFIG"))):
        if named is not None and str(named):
            path = Path(named).expanduser().absolute()
            if not path.is_file():
                raise ConfigError(f"{how} names this file but there is no such file", str(path), None)
            return path
    home = environ.get("XDG_CONFIG_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".config"
    for folder in (base, Path("/etc/xdg")):
        path = folder / "gpufair" / "gpufair.toml"
        if path.is_file():
            return path
    return None


def load_config(path: Path | None) -> Config:
    """The configuration in ``path`` and the budgets file that it names; the defaults for None.

    Raises:
        ConfigError: Something in it is not valid, or it can't be read.
        gpufair.core.errors.BudgetError: The budgets file is not valid.
    """
    if path is None:
        return Config(nodes=DEFAULT_NODES, profiles=DEFAULT_PROFILES)
    config = parse_config(read_limited(path, MAX_CONFIG_BYTES), str(path))
    if config.budgets_file is not None:
        # Relative to the configuration, not to where somebody happened to stand.
        budgets_file = (path.parent / config.budgets_file).absolute()
        if not budgets_file.exists():
            source = TomlSource(read_limited(path, MAX_CONFIG_BYTES))
            raise ConfigError(
                f"budgets names {budgets_file}, which is not there; correct the path (it counts from this file)",
                str(path),
                source.line(("budgets",)),
            )
        budgets = read_budgets(budgets_file, config.users)
        config = replace(config, budgets=budgets, budgets_file=budgets_file)
    _check_allocations(config, str(path))
    return replace(config, source=path)


def read_limited(path: Path, limit: int) -> str:
    """The text of ``path``.

    Raises:
        ConfigError: It can't be read, is larger than ``limit`` bytes, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as err:
        raise ConfigError(f"cannot be read: {err.strerror or err}", str(path), None) from err
    if len(data) > limit:
        raise ConfigError(f"is larger than {limit:,} bytes", str(path), None)
    try:
        # Some editors begin a file with a byte order mark; nobody sees it, and it means nothing.
        return data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as err:
        raise ConfigError("is not UTF-8 text", str(path), data[: err.start].count(b"\n") + 1) from err


def parse_config(text: str, file: str) -> Config:
    """The configuration in ``text``. The budgets file is named but not read.

    Raises:
        ConfigError: Something in it is not valid; ``file`` is what the error calls it.
    """
    try:
        source = TomlSource(text)
    except TomlSyntaxError as err:
        raise ConfigError(f"is not valid TOML: {err}", file, err.line) from err
    root = Table(source, file, (), source.data)
    policy = read_policy(root.table("policy"), root.table("grace"))
    nodes = tuple(read_node(table) for table in root.tables("node"))
    folder = Path(file).absolute().parent
    pools = tuple(read_pool(table, folder) for table in root.tables("pool"))
    # Where a cluster tells which nodes there are, the machine of the service is none by itself.
    usual_nodes = () if any(pool.kubernetes is not None for pool in pools) else DEFAULT_NODES
    profiles = tuple(read_profile(table, policy, folder) for table in root.tables("profile"))
    _refuse_repeats(root, "node", [node.name for node in nodes])
    _refuse_repeats(root, "pool", [pool.name for pool in pools])
    refuse_unknown_pools(root, nodes or usual_nodes, pools, profiles)
    refuse_mounted_state(root, pools, profiles)
    _refuse_repeats(root, "profile", [profile.name for profile in profiles])
    if len(nodes) > MAX_NODES:
        root.fail(f"{len(nodes)} nodes are configured; at most {MAX_NODES} are allowed", "node")
    refuse_two_autos(root, nodes)
    budgets_file = Path(root.text("budgets", "", longest=4096)) if root.has("budgets") else None
    if budgets_file == Path():
        root.fail('budgets has to name a file, like "budgets.toml"', "budgets")
    config = Config(
        service=_service(root.table("service")),
        store=read_store(root.table("store"), Path(file).absolute().parent),
        policy=policy,
        nodes=nodes or usual_nodes,
        pools=pools,
        profiles=profiles or DEFAULT_PROFILES,
        users=_users(root, "users"),
        operators=_users(root, "operators"),
        auditors=_users(root, "auditors"),
        budget_owners=_budget_owners(root),
        autosave_share=_autosave_share(root.table("checkpoints")),
        checkpoint_store=_checkpoint_store(root.table("checkpoints")),
        checkpoint_url=_checkpoint_url(root.table("checkpoints")),
        suggest_cpu_after=_suggest_cpu_after(root.table("sessions")),
        cpu_pool=read_cpu_pool(root.table("cpu_pool"), Path(file).parent),
        notifications=read_notifications(root.table("notifications"), Path(file).absolute().parent),
        hub=read_hub(root.table("hub"), Path(file).absolute().parent),
        tls=read_tls(root.table("tls"), Path(file).absolute().parent),
        budgets_file=budgets_file,
    )
    root.finish()
    return config


def _service(table: Table) -> ServiceOptions:
    default = ServiceOptions()
    linger = default.linger
    if table.raw("linger") == UNTIL_IDLE:
        linger = None
    elif table.has("linger"):
        if not isinstance(table.raw("linger"), str):
            table.fail(
                f'linger = {shown(table.raw("linger"))}: expected a duration like 15m, or "{UNTIL_IDLE}"', "linger"
            )
        linger = table.duration("linger", Millis(0), Millis(0), YEAR)
    options = ServiceOptions(
        host=table.text("host", default.host),
        port=table.integer("port", default.port, 0, 65535),
        linger=linger,
        agent_silence=table.duration("agent_silence", default.agent_silence, SECOND, HOUR),
        snapshot_every=table.integer("snapshot_every", default.snapshot_every, 1, 1_000_000),
        requests_per_s=table.integer("requests_per_s", default.requests_per_s, 0, 100_000),
        wrong_tokens_per_minute=table.integer("wrong_tokens_per_minute", default.wrong_tokens_per_minute, 0, 100_000),
        proxies=_proxies(table),
        insecure=table.boolean("insecure", default=False),
        names=table.strings("names"),
    )
    if not options.host:
        table.fail('host is empty; use "127.0.0.1" for this machine only', "host")
    table.finish()
    return options


def _proxies(table: Table) -> tuple[str, ...]:
    for proxy in table.strings("proxies"):
        try:
            ip_network(proxy)
        except ValueError:
            table.fail(f'proxies: {shown(proxy)} is no address; write "127.0.0.1", or "10.0.0.0/24" for a network', "proxies")
    return table.strings("proxies")


def _autosave_share(table: Table) -> float:
    if table.raw("after_cells") == OFF:
        return 0.0
    return table.number("after_cells", AUTOSAVE_SHARE, 0.0, 0.5)


def _checkpoint_store(table: Table) -> dict[str, object]:
    keep_for = None if table.raw("keep_for", OFF) == OFF else table.duration("keep_for", HOUR, MINUTE, YEAR)
    return {
        "compression": table.choice("compression", "auto", ("auto", "never")),
        "encryption": table.boolean("encryption", default=False),
        "session_bytes": table.size("session_limit", 0),
        "user_bytes": table.size("user_limit", 0),
        "keep": table.integer("keep", 2, 1, 100),
        "keep_s": keep_for / SECOND if keep_for else 0.0,
    }


def _checkpoint_url(table: Table) -> str:
    if not table.has("url"):
        return ""
    from gpufair.node.checkpoint.remote import BadUrl, check_url  # noqa: PLC0415 - rarely needed, and heavy

    url = table.text("url", "", longest=1024).rstrip("/")
    try:
        check_url(url)
    except BadUrl as err:
        table.fail(f"url: {err}", "url")
    return url


def _suggest_cpu_after(table: Table) -> Millis:
    off = table.raw("suggest_cpu_after") == OFF
    limit = Millis(0) if off else table.duration("suggest_cpu_after", SUGGEST_CPU_AFTER, Millis(0), YEAR)
    table.finish()
    return limit


def _users(root: Table, key: str) -> tuple[str, ...]:
    users = root.strings(key)
    for at, user in enumerate(users):
        if NAME.fullmatch(user) is None or user in users[:at]:
            why = (
                "is there twice"
                if user in users[:at]
                else "is no user name (letters, digits, '.', '_', '-', at most 64)"
            )
            root.fail(f"{key}: {shown(user)} {why}", key)
    return users


def _budget_owners(root: Table) -> dict[str, tuple[str, ...]]:
    """A list of users who own the whole tree, or a table of users with the allocations that they own."""
    key = "budget_owners"
    if not isinstance(root.raw(key), dict):
        return dict.fromkeys(_users(root, key), (WHOLE_TREE,))
    table = root.table(key)
    for user in table.keys:
        if NAME.fullmatch(user) is None:
            table.fail(f"{shown(user)} is no user name (letters, digits, '.', '_', '-', at most 64)", user)
        for path in table.strings(user):
            if path != ALL and any(NAME.fullmatch(part) is None for part in path.split("/")):
                table.fail(
                    f'{shown(path)} is no path of an allocation; write "language/speech", or "{ALL}" for all', user
                )
    return {user: tuple(WHOLE_TREE if one == ALL else one for one in table.strings(user)) for user in table.keys}


def _refuse_repeats(root: Table, key: str, names: list[str]) -> None:
    for at, (table, name) in enumerate(zip(root.tables(key), names, strict=True)):
        if name in names[:at]:
            table.fail(f"there is already a [[{key}]] named {name!r}; give this one another name", "name")


def _check_allocations(config: Config, file: str) -> None:
    """What names an allocation that isn't there would fail at each use: say so now."""
    leaves = config.budgets.leaves
    named = [profile for profile in config.profiles if profile.allocation and profile.allocation not in leaves]
    given = any(pool.kubernetes is not None and pool.kubernetes.namespaces for pool in config.pools)
    if not (named or given):
        return
    source = TomlSource(read_limited(Path(file), MAX_CONFIG_BYTES))
    root = Table(source, file, (), source.data)
    refuse_unknown_allocations(root, config.pools, leaves)
    if not named:
        return
    at = [str(table.get("name")) for table in source.data.get("profile", [])].index(named[0].name)
    known = ", ".join(leaves)
    raise ConfigError(
        f"allocation = {shown(named[0].allocation)} of profile {named[0].name!r} is not a leaf of the budget tree"
        f"{hint(named[0].allocation, leaves)}; leaves are {known}",
        file,
        source.line(("profile", at, "allocation")),
    )
