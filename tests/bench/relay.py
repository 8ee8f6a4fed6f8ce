"""What a relay costs: an execute round trip and 50 MB of output, beside the same kernel reached directly.

The client runs in the process that also runs the relay's thread, as nbclient and a Jupyter server do: the two share
one interpreter lock, which is the worst case.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from jupyter_gpufair.io_thread import call_on_io, io_thread
from jupyter_gpufair.relay import HOST, Relay
from tests.bench.result import Result

ROUND_TRIPS = 500
MEGABYTES = 50
ROUNDS = 5
BLOCK = 10
LIMIT_MS = 1.0
SHARE = 0.70
OUTPUT = f"import sys\nfor _ in range({MEGABYTES}):\n    sys.stdout.write('x' * 999_999 + chr(10))"


@contextmanager
def kernel() -> Iterator[dict[str, Any]]:
    """One kernel: how it is reached, by the name of the way."""
    warnings.filterwarnings("ignore", message=".*without encryption.*")
    manager, first = start_new_kernel(kernel_name="python3")
    first.stop_channels()
    info: dict[str, Any] = dict(manager.get_connection_info())

    async def open_relay() -> Relay:
        relay = Relay(io_thread().loop)
        relay.start()
        relay.attach(info, (1, 1))
        return relay

    async def close_relay(relay: Relay) -> None:
        relay.close()

    relay = call_on_io(open_relay(), 10)
    ports = {f"{channel}_port": port for channel, port in relay.ports.items()}
    try:
        yield {"direct": info, "relay": {**info, "ip": HOST, **ports}}
    finally:
        manager.shutdown_kernel(now=True)
        call_on_io(close_relay(relay), 10)


@contextmanager
def connected(info: dict[str, Any]) -> Iterator[BlockingKernelClient]:
    """The only client of the kernel meanwhile: another one would have its share of the output forwarded too."""
    client = BlockingKernelClient()
    client.load_connection_info(info)  # type: ignore[arg-type]  # a plain dict of the same keys
    client.start_channels()
    try:
        client.wait_for_ready(60)
        yield client
    finally:
        client.stop_channels()


def execute(client: BlockingKernelClient, code: str) -> tuple[float, int]:
    """Seconds until reply and idle status are here, and characters printed."""
    begun = time.perf_counter()
    msg_id = client.execute(code)
    printed = 0
    while True:
        message = client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") != msg_id:
            continue
        if message["msg_type"] == "stream":
            printed += len(message["content"]["text"])
        elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            break
    while client.get_shell_msg(timeout=60)["parent_header"].get("msg_id") != msg_id:
        pass
    return time.perf_counter() - begun, printed


def relay_rtt() -> Result:
    """500 execute round trips each way, in blocks of ten in turn; the median difference between neighbouring blocks.

    Neighbours are compared because a busy machine's round trip drifts by more than the relay costs.
    """
    times: dict[str, list[float]] = {"direct": [], "relay": []}
    differences = []
    with kernel() as ways:
        for _ in range(ROUND_TRIPS // BLOCK):
            medians = {}
            for name, info in ways.items():
                with connected(info) as client:
                    execute(client, "pass")
                    block = [execute(client, "pass")[0] * 1000 for _ in range(BLOCK)]
                times[name] += block
                medians[name] = statistics.median(block)
            differences.append(medians["relay"] - medians["direct"])
    return Result(
        statistics.median(differences),
        "ms more per round trip",
        LIMIT_MS,
        notes={
            "direct_ms": statistics.median(times["direct"]),
            "relay_ms": statistics.median(times["relay"]),
            "round_trips": ROUND_TRIPS,
        },
    )


def relay_throughput() -> Result:
    """50 MB of printed output, medians of five each way, taken in turn."""
    rates: dict[str, list[float]] = {"direct": [], "relay": []}
    with kernel() as ways:
        for _ in range(ROUNDS):
            for name, info in ways.items():
                with connected(info) as client:
                    taken, printed = execute(client, OUTPUT)
                assert printed == MEGABYTES * 1_000_000, printed
                rates[name].append(printed / taken / 1e6)
    medians = {name: statistics.median(rate) for name, rate in rates.items()}
    return Result(
        medians["relay"] / medians["direct"],
        "of the direct throughput",
        SHARE,
        at_least=True,
        notes={"direct_mb_s": medians["direct"], "relay_mb_s": medians["relay"], "megabytes": MEGABYTES, "rounds": ROUNDS},
    )


CASES = {"relay_rtt": relay_rtt, "relay_throughput": relay_throughput}
