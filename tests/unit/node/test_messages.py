"""Our few lines of the Jupyter protocol agree with jupyter_client."""

import json

from jupyter_client.session import Session

from gpufair.node.messages import Signer, request

KEY = "ab" * 32


def test_jupyter_client_accepts_our_requests():
    message_id, frames = request(Signer(KEY), "s1", "kernel_info_request", {"a": "é"})
    session = Session(key=KEY.encode())
    message = session.deserialize(session.feed_identities(frames)[1])
    assert (message["header"]["msg_id"], message["msg_type"], message["content"]) == (
        message_id,
        "kernel_info_request",
        {"a": "é"},
    )


def test_we_accept_what_it_signs_and_nothing_else():
    session = Session(key=KEY.encode())
    message = session.msg("status", {"execution_state": "busy"})
    frames = session.serialize(message, ident=b"kernel.status")
    body = Signer(KEY).split([*frames, b"buffer"])
    assert body is not None
    assert json.loads(body[3]) == {"execution_state": "busy"}
    assert body[4:] == [b"buffer"]
    assert Signer("cd" * 32).split(frames) is None
    assert Signer(KEY).split([*frames[:-1], b"{}"]) is None
    assert Signer(KEY).split([b"noise"]) is None
    assert Signer(KEY).split([b"<IDS|MSG>"]) is None
