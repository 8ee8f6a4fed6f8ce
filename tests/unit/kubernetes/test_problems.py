"""Every bad answer has a class, and says what was asked, what is true and what to do."""

from __future__ import annotations

import json

import pytest

from gpufair.service.backends.kubernetes.asked import Asked, asked
from gpufair.service.backends.kubernetes.problems import (
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubernetesProblem,
    Missing,
    Throttled,
    Unauthorized,
    Unavailable,
    problem_of,
)
from tests.unit.kubernetes.raw_server import status

POD = Asked("create", "pods", namespace="team-a", name="gpufair-w1-0")


@pytest.mark.parametrize(
    ("method", "path", "query", "body", "expected"),
    [
        ("GET", "/api/v1/pods", {}, None, Asked("list", "pods")),
        ("GET", "/api/v1/pods", {"watch": True}, None, Asked("watch", "pods")),
        ("GET", "/api/v1/pods", {"watch": "1"}, None, Asked("watch", "pods")),
        ("GET", "/api/v1/nodes/n1", {}, None, Asked("get", "nodes", name="n1")),
        ("GET", "/api/v1/namespaces", {}, None, Asked("list", "namespaces")),
        ("GET", "/api/v1/namespaces/a", {}, None, Asked("get", "namespaces", name="a")),
        ("PUT", "/api/v1/namespaces/a/finalize", {}, None, Asked("update", "namespaces/finalize", name="a")),
        ("GET", "/api/v1/namespaces/a/pods", {}, None, Asked("list", "pods", namespace="a")),
        (
            "POST",
            "/api/v1/namespaces/a/pods",
            {},
            {"metadata": {"name": "p"}},
            Asked("create", "pods", namespace="a", name="p"),
        ),
        (
            "POST",
            "/api/v1/namespaces/a/pods/p/binding",
            {},
            {},
            Asked("create", "pods/binding", namespace="a", name="p"),
        ),
        ("PATCH", "/api/v1/namespaces/a/pods/p/status", {}, {}, Asked("patch", "pods/status", namespace="a", name="p")),
        ("DELETE", "/api/v1/namespaces/a/pods/p", {}, None, Asked("delete", "pods", namespace="a", name="p")),
        ("DELETE", "/api/v1/namespaces/a/pods", {}, None, Asked("deletecollection", "pods", namespace="a")),
        (
            "PUT",
            "/apis/coordination.k8s.io/v1/namespaces/a/leases/l",
            {},
            {},
            Asked("update", "leases", "coordination.k8s.io", "a", "l"),
        ),
        ("GET", "/version", {}, None, Asked("get", "", name="/version")),
        ("GET", "/api/v1", {}, None, Asked("get", "", name="/api/v1")),
        ("GET", "/apis/apps/v1", {}, None, Asked("get", "", "apps", name="/apis/apps/v1")),
        ("GET", "/", {}, None, Asked("get", "", name="/")),
    ],
)
def test_a_call_is_named_as_access_rules_name_it(method, path, query, body, expected) -> None:
    """The message of a refusal then says which rule is missing."""
    assert asked(method, path, query, body) == expected


@pytest.mark.parametrize(
    ("code", "message", "reason", "kind", "says"),
    [
        (401, "Unauthorized", "Unauthorized", Unauthorized, "token"),
        (404, 'pods "x" not found', "NotFound", Missing, "deleted meanwhile"),
        (410, "too old resource version: 1 (9)", "Expired", Gone, "list again"),
        (410, "The provided continue parameter is too old", "Expired", Gone, "list again"),
        (422, 'Pod "x" is invalid: spec.containers: Required value', "Invalid", Invalid, "template"),
        (400, "the object provided is unrecognized", "BadRequest", Invalid, "template"),
        (413, "request entity too large", "RequestEntityTooLarge", Invalid, "template"),
        (429, "too many requests", "TooManyRequests", Throttled, "later"),
        (408, "request did not complete within requested timeout", "Timeout", Unavailable, "reached"),
        (500, "etcdserver: request timed out", "InternalError", Unavailable, "reached"),
        (503, "apiserver not ready", "ServiceUnavailable", Unavailable, "reached"),
        (504, "context deadline exceeded", "Timeout", Unavailable, "reached"),
    ],
)
def test_each_status_has_its_class(code, message, reason, kind, says) -> None:
    """Callers decide by class; people read the text."""
    problem = problem_of(POD, code, json.dumps(status(code, message, reason)).encode())
    assert type(problem) is kind
    assert (problem.asked, problem.said, problem.status, problem.reason) == (POD, message, code, reason)
    assert str(problem).startswith(
        f"Kubernetes could not create pods 'gpufair-w1-0' in namespace 'team-a' ({code}): {message}; "
    )
    assert says in problem.advice


@pytest.mark.parametrize(
    ("message", "reason", "kind"),
    [
        ('pods "x" already exists', "AlreadyExists", "exists"),
        (
            'Operation cannot be fulfilled on pods "x": the object has been modified; please apply your changes',
            "Conflict",
            "stale",
        ),
        (
            'Operation cannot be fulfilled on pods "x": the UID in the precondition (a) does not match the UID in record (b). '
            "The object might have been deleted and then recreated",
            "Conflict",
            "stale",
        ),
        (
            'Operation cannot be fulfilled on Pod "x": Precondition failed: UID in precondition: a, UID in object meta: b',
            "Conflict",
            "stale",
        ),
        (
            'Operation cannot be fulfilled on pods/binding "x": pod x is already assigned to node "n1"',
            "Conflict",
            "bound",
        ),
        (
            'Operation cannot be fulfilled on pods/binding "x": pod x is being deleted, cannot be assigned to a host',
            "Conflict",
            "deleting",
        ),
        ('object is being deleted: pods "x" already exists', "AlreadyExists", "exists"),
        ("something else", "Conflict", "other"),
    ],
)
def test_conflicts_are_told_apart(message, reason, kind) -> None:
    """One says that our own pod is there already, one that it has a node, one that we know an old state."""
    problem = problem_of(POD, 409, status(409, message, reason))
    assert isinstance(problem, Conflict)
    assert problem.kind == kind
    assert problem.advice in str(problem)


@pytest.mark.parametrize(
    ("message", "kind", "says"),
    [
        (
            'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "team-a"',
            "rights",
            "'create' on 'pods'",
        ),
        (
            'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5',
            "quota",
            "ResourceQuota",
        ),
        ('pods "x" is forbidden: failed quota: q: must specify limits.cpu', "quota", "ResourceQuota"),
        (
            'pods "x" is forbidden: unable to create new content in namespace team-a because it is being terminated',
            "namespace",
            "again",
        ),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', "policy", "policy"),
        (
            'pods "x" is forbidden: error looking up service account team-a/default: serviceaccount "default" not found',
            "policy",
            "policy",
        ),
    ],
)
def test_refusals_are_told_apart(message, kind, says) -> None:
    """An administrator has to do something else for each."""
    problem = problem_of(POD, 403, status(403, message, "Forbidden"))
    assert isinstance(problem, Forbidden)
    assert problem.kind == kind
    assert says in str(problem)


def test_a_missing_right_names_its_group() -> None:
    """So that a rule can be written from the message alone."""
    lease = Asked("update", "leases", "coordination.k8s.io", "gpufair", "leader")
    message = (
        'leases "leader" is forbidden: User "u" cannot update resource "leases" in API group "coordination.k8s.io"'
    )
    assert "'update' on 'leases' in API group 'coordination.k8s.io'" in str(
        problem_of(lease, 403, status(403, message))
    )


@pytest.mark.parametrize(
    ("header", "details", "expected"),
    [
        ("3", {}, 3.0),
        (None, {"retryAfterSeconds": 7}, 7.0),
        ("2", {"retryAfterSeconds": 7}, 2.0),
        ("Wed, 21 Oct", {}, None),
        (None, {}, None),
    ],
)
def test_the_server_may_say_when_to_ask_again(header, details, expected) -> None:
    """In the header, or in the Status."""
    body = json.dumps(status(429, "slow down", "TooManyRequests", **details)).encode()
    assert problem_of(POD, 429, body, header).retry_after_s == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>bad gateway</html>",
        b"\xff\xfe",
        b"[1]",
        b"null",
        b'{"message": null, "details": 5}',
        b'{"details": {"retryAfterSeconds": true}}',
    ],
)
def test_what_a_proxy_says_instead_is_quoted(body: bytes) -> None:
    """It may be anything, and never breaks the message."""
    problem = problem_of(POD, 502, body)
    assert isinstance(problem, Unavailable)
    assert problem.retry_after_s is None
    assert "could not create pods" in str(problem)


def test_a_long_text_is_cut() -> None:
    """A webhook may answer with a page."""
    problem = problem_of(POD, 500, json.dumps(status(500, "x" * 100_000)).encode())
    assert len(str(problem)) < 1000


def test_who_sends_elsewhere_is_no_api_server() -> None:
    """A login page in front of it, say."""
    problem = problem_of(POD, 302, b"")
    assert isinstance(problem, KubernetesProblem)
    assert "sends elsewhere" in str(problem)
