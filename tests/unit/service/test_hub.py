"""Asking a JupyterHub, with one that is played here: what is kept, who waits, and what is made of its answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpufair.core.units import Millis
from gpufair.service.identity import hub as asking
from gpufair.service.identity.hub import MOST_BYTES, REST_S, Hub, HubUser, digest
from gpufair.service.identity.mandates import admitted
from gpufair.service.problems import Forbidden, HubUnavailable
from gpufair.service.settings.config import parse_config
from gpufair.service.settings.hub_options import Admits, HubOptions, Mandate
from gpufair.service.settings.tables import ConfigError
from tests.unit.service.rig import bearer, service_at

OPTIONS = HubOptions("http://127.0.0.1:8081/hub/api", cache=Millis(60_000), timeout=Millis(1000))
ADA = HubUser("user", "ada", frozenset({"nlp"}), frozenset({"access:servers!server=ada/"}))
MODEL = {"kind": "user", "name": "ada", "groups": ["nlp"], "scopes": ["access:servers!server=ada/"]}


class Played:
    """A Hub that knows the token "good", on a clock that is moved by hand."""

    def __init__(self, options: HubOptions = OPTIONS) -> None:
        self.asked: list[str] = []
        self.now = 0.0
        self.answer: Callable[[], httpx.Response] | None = None
        self.hub = Hub(options, False, lambda: self.now, httpx.MockTransport(self._serve))

    def _serve(self, request: httpx.Request) -> httpx.Response:
        assert request.url == f"{OPTIONS.url}/user"
        self.asked.append(request.headers["authorization"].removeprefix("token "))
        if self.answer is not None:
            return self.answer()
        return httpx.Response(200, json=MODEL) if self.asked[-1] == "good" else httpx.Response(403)


async def test_what_the_hub_said_counts_for_a_while() -> None:
    """It is asked once, also by many at once; then again. What it refused is asked anew."""
    played = Played()
    assert await asyncio.gather(*(played.hub.whose("good") for _ in range(5))) == [ADA] * 5
    assert await played.hub.whose("bad") is None
    assert await played.hub.whose("no\x7ftoken") is None
    assert played.asked == ["good", "bad"]
    played.now = 59.9
    assert await played.hub.whose("good") == ADA
    assert played.hub.vouches(digest("good"))
    played.now = 60.0
    assert not played.hub.vouches(digest("good"))
    played.answer = lambda: httpx.Response(403)
    assert await played.hub.whose("good") is None
    assert played.asked == ["good", "bad", "good"]
    await played.hub.close()


async def test_so_much_is_kept_and_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes."""
    monkeypatch.setattr(asking, "MOST_KEPT", 3)
    played = Played()
    played.answer = lambda: httpx.Response(200, json=MODEL)
    for number in range(5):
        await played.hub.whose(f"token-{number}")
    assert list(played.hub._kept) == [digest(f"token-{number}") for number in (2, 3, 4)]
    assert played.hub._asking == {}
    await played.hub.close()


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(500),
        httpx.Response(302, headers={"location": "http://elsewhere.example/"}),
        httpx.Response(200, text="<html>"),
        httpx.Response(200, text="[" * 100_000),
        httpx.Response(200, json=["ada"]),
        httpx.Response(200, json={"name": "ada"}),
        httpx.Response(200, json=MODEL | {"groups": "nlp"}),
        httpx.Response(200, json=MODEL | {"scopes": [{}]}),
        httpx.Response(200, content=b" " * (MOST_BYTES + 1)),
    ],
    ids=["error", "redirect", "page", "nested", "list", "no kind", "groups", "scopes", "huge"],
)
async def test_what_no_hub_says_is_no_answer(answer: httpx.Response) -> None:
    """Nobody is let in by it, nobody refused; for a moment nobody waits for the next one."""
    played = Played()
    played.answer = lambda: answer
    with pytest.raises(HubUnavailable):
        await played.hub.whose("good")
    played.answer = None
    with pytest.raises(HubUnavailable, match="a moment ago"):
        await played.hub.whose("good")
    played.now = REST_S
    assert await played.hub.whose("good") == ADA
    await played.hub.close()


async def test_a_hub_that_hangs_holds_nobody_up() -> None:
    """The question ends in time, and the event loop goes on meanwhile; who goes away takes no answer from others."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    hub = await Hub.open(replace(OPTIONS, url=f"http://127.0.0.1:{port}/hub/api", timeout=Millis(500)))
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    heart = asyncio.create_task(beat())
    impatient, patient = (asyncio.create_task(hub.whose("good")) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    with pytest.raises(HubUnavailable):
        await patient
    assert beats >= 3
    heart.cancel()
    # What is asked when the Hub is given up is answered, too.
    hub._rests_until = 0.0
    last = asyncio.create_task(hub.whose("other"))
    await asyncio.sleep(0.05)
    await hub.close()
    with pytest.raises(HubUnavailable):
        await last
    server.close()


NAMED = ("ada", "olga")


@pytest.mark.parametrize(
    ("user", "options", "wanted"),
    [
        ({}, {}, ("ada", Mandate.RESEARCHER)),
        ({"scopes": ["access:servers"]}, {}, ("ada", Mandate.RESEARCHER)),
        ({"scopes": ["access:servers!user=ada"]}, {}, ("ada", Mandate.RESEARCHER)),
        ({"scopes": ["access:servers!server=adam/"]}, {}, "not made for this service"),
        ({"scopes": ["access:servers!user=adam", "access:services!service=x"]}, {}, "not made for this service"),
        ({"scopes": []}, {}, "not made for this service"),
        ({}, {"scopes": ("access:services!service=gpufair",)}, "not made for this service"),
        ({"scopes": ["x"]}, {"scopes": ("x", "y")}, ("ada", Mandate.RESEARCHER)),
        ({"kind": "service"}, {}, "only its users"),
        ({"name": "carl"}, {}, "gpufair.toml does not"),
        ({"name": "carl"}, {"admits": Admits.EVERYBODY}, ("carl", Mandate.RESEARCHER)),
        ({"name": "carl"}, {"roles": {"group:nlp": Mandate.RESEARCHER}}, ("carl", Mandate.RESEARCHER)),
        ({"name": "carl"}, {"roles": {"scope:nlp": Mandate.RESEARCHER}}, "gpufair.toml does not"),
        ({}, {"roles": {"group:nlp": Mandate.AUDITOR, "group:other": Mandate.OPERATOR}}, ("ada", Mandate.AUDITOR)),
        ({"groups": ["nlp", "ops"]}, {"roles": {"group:nlp": Mandate.OPERATOR, "group:ops": Mandate.AUDITOR}}, ("ada", Mandate.OPERATOR)),
        ({"name": "keeper"}, {"admits": Admits.EVERYBODY}, "nobody of the Hub can have that name"),
        ({"name": "../ada"}, {"admits": Admits.EVERYBODY}, "nobody of the Hub can have that name"),
        ({"name": "a@x"}, {"names": {"a@x": "ada"}}, ("ada", Mandate.RESEARCHER)),
        ({"name": "ada"}, {"names": {"a@x": "ada"}}, "nobody of the Hub can have that name"),
    ],
)
def test_who_a_user_of_the_hub_is_here(user: dict[str, Any], options: dict[str, Any], wanted: object) -> None:
    """As little as was not said, and nobody under somebody else's name."""
    model = {"kind": "user", "name": "ada", "groups": ["nlp"]} | user
    scopes = model.get("scopes", [f"access:servers!server={model['name']}/"])
    found = HubUser(model["kind"], model["name"], frozenset(model["groups"]), frozenset(scopes))
    given = replace(OPTIONS, **options)
    if isinstance(wanted, str):
        with pytest.raises(Forbidden, match=wanted):
            admitted(found, given, "keeper", NAMED)
    else:
        assert admitted(found, given, "keeper", NAMED) == wanted


async def test_only_what_may_be_the_hubs_is_asked_about(tmp_path: Path) -> None:
    """Our own tokens never leave; one of the Hub's is let in, in streams as long as the Hub knows it."""
    async with service_at(tmp_path) as (it, client):
        played = Played()
        it.authenticator._hub = played.hub
        made = (await client.post("/api/v1/tokens", json={"user": "ada"})).json()
        await client.delete(f"/api/v1/tokens/{made['id']}")
        for token in (made["token"], it.secrets.user_token("ada"), it.secrets.agent_token("n1")):
            path = "agents/n1/commands?boot=x" if token == it.secrets.agent_token("n1") else "status"
            await client.get(f"/api/v1/{path}", headers=bearer(token))
        assert played.asked == []
        assert (await client.get("/api/v1/status", headers=bearer("good"))).json()["user"] == "ada"
        who = await it.authenticator.admit("Bearer good")
        assert who.key == "user:ada"
        assert await it.authenticator.still(who)
        assert await it.authenticator.still(who, "Bearer good")
        played.now, played.answer = 60.0, lambda: httpx.Response(403)
        assert not await it.authenticator.still(who)
        assert not await it.authenticator.still(who, "Bearer good")


def test_options_are_checked(tmp_path: Path) -> None:
    """Each mistake is named, with its line."""
    good = '[hub]\nurl = "https://hub.example/hub/api"\n'
    options = parse_config(good + 'cache = "30s"\n[hub.roles]\n"group:ops" = "operator"\n', "f").hub
    assert (options.url, options.roles) == ("https://hub.example/hub/api", {"group:ops": Mandate.OPERATOR})
    for text, told in {
        '[hub]\nurl = "https://hub.example"\n': "the address of the Hub's API",
        '[hub]\nurl = "http://hub.example/hub/api"\n': "unencrypted",
        '[hub]\ncache = "30s"\n': "there is no url",
        good + 'cache = "1h"\n': "out of range",
        good + 'admits = "all"\n': "expected one of named, everybody",
        good + 'ca = "gone.pem"\n': "is not there",
        good + '[hub.roles]\n"ops" = "operator"\n': '"group:NAME"',
        good + '[hub.roles]\n"group:ops" = "root"\n': "expected one of researcher",
        good + '[hub.names]\n"a@x" = "a b"\n': "a name is",
        good + '[hub.names]\n"a@x" = "ada"\n"b@x" = "ada"\n': "there twice",
    }.items():
        with pytest.raises(ConfigError, match=r"f, line \d+") as caught:
            parse_config(text, "f")
        assert told in str(caught.value)


async def test_no_token_of_the_hub_gets_into_a_log_or_an_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the Hub answers, and whatever it quotes."""
    caplog.set_level(logging.DEBUG)
    token = "hub-secret-" + "s" * 32
    async with service_at(tmp_path) as (it, client):
        played = Played()
        it.authenticator._hub = played.hub
        texts = []
        for answer in (
            httpx.Response(200, json=MODEL),
            httpx.Response(200, json=MODEL | {"kind": "service"}),
            httpx.Response(500, text=token),
            httpx.Response(200, text=token),
            httpx.Response(302, headers={"location": f"http://elsewhere/{token}"}),
            httpx.Response(403, text=token),
        ):
            played.answer, played.now = (lambda answer=answer: answer), played.now + 60.0
            texts.append((await client.get("/api/v1/status", headers=bearer(token))).text)
        # Of the library's own debugging lines nothing is written unless somebody asks for it.
        texts += [record.getMessage() for record in caplog.records if record.name.startswith(("gpufair", "httpx"))]
        assert len(played.asked) == 6
        assert [text for text in texts if token in text] == []
