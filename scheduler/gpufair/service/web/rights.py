"""Which right each route needs, in one table, and who has it. A route that is not in the table answers nobody."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from fastapi import Request
from fastapi.routing import APIRoute

from gpufair.service.identity.auth import Principal, Role
from gpufair.service.problems import Forbidden
from gpufair.service.storage.audit import Doer, doer
from gpufair.service.storage.tokens import Scope
from gpufair.service.web.context import principal


class Right(StrEnum):
    """What a route needs of its caller. What is whose is decided by the route itself."""

    OPEN = "open"  # nothing, not even a token
    AGENT = "agent"  # the token of the node, or of the pod, that the path names; the gate sees to it
    READ = "read"  # a token: shows what the caller may see
    PLAN = "plan"  # to own a budget, or to see everything
    AUDIT = "audit"  # to see everything
    ACT = "act"  # to change what is one's own
    DIVIDE = "divide"  # to change a budget that is one's own
    OPERATE = "operate"  # to be an operator


_READ: Final = frozenset({Right.READ})
# What each role has; what its token's scope leaves of that is below.
HAS: Final[dict[Role, frozenset[Right]]] = {
    Role.USER: _READ | {Right.ACT},
    Role.AUDITOR: _READ | {Right.PLAN, Right.AUDIT},
    Role.OPERATOR: frozenset(Right) - {Right.OPEN, Right.AGENT},
    Role.AGENT: frozenset({Right.AGENT}),
}
OWNERS: Final = frozenset({Right.PLAN, Right.DIVIDE})  # of budgets, beside what their role has
NEEDS: Final[dict[Right, Scope]] = {Right.ACT: Scope.ACT, Right.DIVIDE: Scope.MANAGE, Right.OPERATE: Scope.MANAGE}

RIGHTS: Final[dict[str, Right]] = {
    "GET /healthz": Right.OPEN,
    "GET /readyz": Right.OPEN,
    "GET /metrics": Right.READ,
    "GET /status": Right.READ,
    "GET /queue": Right.READ,
    "GET /budgets": Right.READ,
    "GET /budgets/why": Right.READ,
    "GET /budgets/delivered": Right.READ,
    "GET /budgets/over-time": Right.READ,
    "GET /history": Right.READ,
    "GET /tour": Right.READ,
    "PUT /budgets": Right.OPERATE,
    "GET /budgets/history": Right.READ,
    "GET /budgets/requests": Right.READ,
    "GET /budgets/requests/{number}": Right.READ,
    "POST /budgets/requests": Right.ACT,
    "POST /budgets/requests/{number}/accept": Right.DIVIDE,
    "POST /budgets/requests/{number}/refuse": Right.DIVIDE,
    "POST /budgets/requests/{number}/withdraw": Right.ACT,
    "POST /budgets/changes": Right.DIVIDE,
    "GET /nodes": Right.READ,
    "POST /nodes/{node}/cordon": Right.OPERATE,
    "POST /nodes/{node}/uncordon": Right.OPERATE,
    "POST /nodes/{node}/drain": Right.OPERATE,
    "DELETE /nodes/{node}": Right.OPERATE,
    "GET /pools": Right.READ,
    "POST /pools/{pool}/cordon": Right.OPERATE,
    "POST /pools/{pool}/uncordon": Right.OPERATE,
    "POST /pools/{pool}/drain": Right.OPERATE,
    "GET /profiles": Right.READ,
    "GET /conservation": Right.READ,
    "GET /timeline": Right.READ,
    "GET /pyramid": Right.READ,
    "GET /preview": Right.READ,
    "POST /coach": Right.READ,  # a question, though it has a body
    "GET /snapshot": Right.PLAN,
    "GET /events": Right.READ,
    "GET /maintenance": Right.READ,
    "POST /maintenance": Right.OPERATE,
    "DELETE /maintenance/{plan}": Right.OPERATE,
    "GET /announcements": Right.READ,
    "POST /announcements": Right.OPERATE,
    "DELETE /announcements/{number}": Right.OPERATE,
    "GET /cpu-pool": Right.READ,
    "POST /cpu-pool/join": Right.ACT,
    "GET /workloads": Right.READ,
    "POST /workloads": Right.ACT,
    "GET /workloads/{workload}": Right.READ,
    "PATCH /workloads/{workload}": Right.ACT,
    "DELETE /workloads/{workload}": Right.ACT,
    "POST /workloads/{workload}/park": Right.ACT,
    "POST /workloads/{workload}/resume": Right.ACT,
    "POST /workloads/{workload}/dismiss": Right.ACT,
    "POST /workloads/{workload}/extend": Right.ACT,
    "POST /workloads/{workload}/restart": Right.ACT,
    "POST /workloads/{workload}/checkpoint": Right.ACT,
    "POST /workloads/{workload}/preflight": Right.ACT,
    "POST /workloads/{workload}/restore": Right.ACT,
    "POST /workloads/{workload}/interrupt": Right.ACT,
    "GET /workloads/{workload}/why": Right.READ,
    "GET /workloads/{workload}/connection": Right.ACT,  # who has the key runs what they like
    "GET /workloads/{workload}/outputs": Right.READ,
    "GET /workloads/{workload}/preflight": Right.READ,
    "GET /workloads/{workload}/log": Right.READ,
    "GET /workloads/{workload}/checkpoints": Right.READ,
    "POST /workloads/{workload}/checkpoints/verify": Right.READ,
    "POST /workloads/{workload}/checkpoints/prune": Right.ACT,
    "GET /workloads/{workload}/checkpoints/{checkpoint}/export": Right.READ,
    "POST /agents/{node}/hello": Right.AGENT,
    "GET /agents/{node}/commands": Right.AGENT,
    "POST /agents/{node}/reports": Right.AGENT,
    "GET /agents/{node}/check": Right.AGENT,
    "POST /pods/{pod}/hello": Right.AGENT,
    "GET /pods/{pod}/commands": Right.AGENT,
    "POST /pods/{pod}/reports": Right.AGENT,
    "GET /tokens": Right.READ,
    "POST /tokens": Right.READ,  # of no larger scope than the caller's own
    "DELETE /tokens/{token}": Right.READ,
    "GET /audit": Right.AUDIT,
    "POST /reload": Right.OPERATE,
    "GET /mine": Right.READ,
    "GET /allocations": Right.READ,
    # Pages for a browser
    "POST /dashboard/links": Right.READ,
    "GET /": Right.OPEN,
    "GET /dashboard": Right.OPEN,
    "GET /dashboard/": Right.OPEN,
    "GET /dashboard/{file}": Right.OPEN,
    "POST /dashboard/login": Right.OPEN,
    "POST /dashboard/logout": Right.OPEN,
}
"""By method and path, without the prefix of the API."""


class UndeclaredRight(Exception):
    """A bug: a route says nowhere who may use it."""


def key_of(route: APIRoute, method: str) -> str:
    """Its entry in the table."""
    # Some versions of the framework keep the path with the prefix of the router around it, some without.
    return f"{method} {route.path.removeprefix('/api/v1')}"


def declared(routes: Iterable[object]) -> None:
    """See to it that each route has an entry.

    Raises:
        UndeclaredRight: One has none.
    """
    for route in routes:
        if isinstance(route, APIRoute):
            for method in sorted(route.methods or ()):
                if key_of(route, method) not in RIGHTS:
                    raise UndeclaredRight(f"{key_of(route, method)}: say in gpufair.service.web.rights what it needs")


def has(who: Principal, right: Right) -> bool:
    """Whether a caller has a right."""
    given = right in HAS[who.role] or (right in OWNERS and who.plans and who.role is Role.USER)
    return given and who.scope.includes(NEEDS.get(right, Scope.READ))


async def authorize(request: Request) -> None:
    """A dependency of all routes.

    Raises:
        Forbidden: The caller has not the right that the route needs.
    """
    route: Any = request.scope["route"]
    admit(request, RIGHTS[key_of(route, request.method)])


def admit(request: Request, right: Right) -> None:
    """See to it that whoever asks has a right.

    Raises:
        Forbidden: They have not.
    """
    if right in {Right.OPEN, Right.AGENT}:
        return
    who = principal(request)
    if has(who, right):
        token = "" if who.token is None else who.token.id
        doer.set(Doer(who.name, str(who.role), token, f"{request.method} {request.url.path}"))
        return
    if (scope := NEEDS.get(right)) is not None and not who.scope.includes(scope):
        raise Forbidden(f"this token of {who.name!r} has the scope {who.scope!s}, and {_WHAT[right]} needs {scope!s}")
    raise Forbidden(f"only {_WHO[right]} may do this, and {who.name!r} is {_ROLE[who.role]}; see gpufair.toml")


_WHAT = {Right.ACT: "changing something", Right.DIVIDE: "changing budgets", Right.OPERATE: "operating"}
_ROLE = {Role.USER: "a researcher", Role.AUDITOR: "an auditor", Role.OPERATOR: "an operator", Role.AGENT: "an agent"}
_WHO = {
    Right.PLAN: "budget owners, auditors and operators",
    Right.AUDIT: "auditors and operators",
    Right.ACT: "researchers and operators",
    Right.DIVIDE: "budget owners and operators",
    Right.OPERATE: "operators",
}
