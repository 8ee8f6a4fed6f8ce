"""The main job from the browser's side, with the real service, agents, supervisors and kernels."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufair.client import Client
from tests.integration.jupyter.real import real_service, service_pid, wait_until
from tests.integration.jupyter.server import ROOT, Server, Tab, environment

Pair = tuple[Server, Client]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with real_service(tmp_path_factory.mktemp("real")) as both:
        yield both


@pytest.fixture(autouse=True)
def none_left(pair: Pair) -> Iterator[None]:
    """What a test that fails leaves running would take the next one's GPUs."""
    yield
    server, client = pair
    for kernel in server.get("/api/kernels"):
        server.call("DELETE", f"/api/kernels/{kernel['id']}", timeout_s=10)
        wait_until(lambda kernel=kernel: client.workload(kernel["id"]).state == "ended")


def connection_file(server: Server, kernel: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(Path(server.home, "runtime", f"kernel-{kernel}.json").read_text())
    return found


def test_parked_touched_and_back_elsewhere(pair: Pair) -> None:
    """Same kernel id, key, ports, websocket and prompt number; variables are there; the GPU is another one."""
    server, client = pair
    kernel = server.new("story.ipynb")
    before = connection_file(server, kernel)
    with Tab(server, kernel) as tab:
        first = tab.run("import os\nx = [1, 2]\nprint(os.environ['GPUFAIR_NODE'])")
        assert tab.reply(first)["execution_count"] == 1
        home = tab.text(first).strip()
        assert server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 202
        assert server.wait_for(kernel, "parked")["checkpoint"]["size_bytes"] > 0
        client.cordon(home)
        try:
            second = tab.run("x.append(3); print(x, os.environ['GPUFAIR_NODE'])")
            reply = tab.reply(second)
        finally:
            client.uncordon(home)
        assert (reply["status"], reply["execution_count"]) == ("ok", 2)
        other = {"node-1": "node-2", "node-2": "node-1"}[home]
        assert tab.text(second) == f"[1, 2, 3] {other}\n"
    assert connection_file(server, kernel) == before
    assert server.session(kernel)["node"] == other
    [first_run, second_run] = server.get(f"/gpufair/sessions/{kernel}/outputs")["executions"]
    assert [run["status"] for run in (first_run, second_run)] == ["ok", "ok"]
    assert server.call("DELETE", f"/api/kernels/{kernel}")[0] == 204
    wait_until(lambda: client.workload(kernel).state == "ended")


def test_an_idle_session_gives_its_gpu_back_and_the_next_cell_brings_it_back(pair: Pair) -> None:
    """Though it is protected: charging stops, somebody else can have the GPU, and its owner hardly notices."""
    server, client = pair
    kernel = server.new("idle.ipynb", "gpufair-brief")
    with Tab(server, kernel) as tab:
        assert tab.reply(tab.run("x = [1]\nf = lambda: x"))["status"] == "ok"
        parked = server.wait_for(kernel, "parked")
        assert parked["checkpoint"] is not None
        assert [node.free_gpus for node in client.nodes() if node.gpus] == [1, 1]
        charged = client.workload(kernel).charged_gpu_s
        later = tab.run("x.append(2); print(f())")
        assert (tab.reply(later)["status"], tab.text(later)) == ("ok", "[1, 2]\n")
        assert client.workload(kernel).charged_gpu_s >= charged
        assert client.workload(kernel).starts == 2
    server.call("DELETE", f"/api/kernels/{kernel}")


def test_a_parked_session_opens_on_a_cpu_and_goes_on_from_there_on_a_gpu(pair: Pair) -> None:
    """One kernel id and one websocket: on a GPU, on a CPU node while others have the GPUs, and on a GPU again."""
    server, client = pair
    kernel = server.new("open.ipynb")
    before = connection_file(server, kernel)
    look = "import os\nprint(x, repr(os.environ['CUDA_VISIBLE_DEVICES']))"
    with Tab(server, kernel) as tab:
        assert tab.reply(tab.run("x = [1]"))["status"] == "ok"
        assert server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 202
        server.wait_for(kernel, "parked")
        others = [server.new(f"other-{number}.ipynb") for number in range(2)]
        for other in others:
            server.wait_for(other, "running")
        assert server.call("POST", f"/gpufair/sessions/{kernel}/open")[0] == 202
        cell = tab.run(f"x.append(2)\n{look}")
        assert (tab.reply(cell)["status"], tab.text(cell)) == ("ok", "[1, 2] ''\n")
        seen = server.session(kernel)
        assert (seen["state"], seen["on_cpu"], seen["position"]) == ("running", True, None)
        charged = client.workload(kernel).charged_gpu_s
        assert server.call("POST", f"/gpufair/sessions/{kernel}/resume")[0] == 202
        wait_until(lambda: server.session(kernel)["position"] == 1)
        cell = tab.run(f"x.append(3)\n{look}")
        assert (tab.reply(cell)["status"], tab.text(cell)) == ("ok", "[1, 2, 3] ''\n")
        assert client.workload(kernel).charged_gpu_s == charged
        assert server.call("DELETE", f"/api/kernels/{others[0]}", timeout_s=10)[0] == 204
        wait_until(lambda: not server.session(kernel)["on_cpu"])
        cell = tab.run(f"x.append(4)\n{look}")
        reply = tab.reply(cell)
        assert reply["status"] == "ok", reply
        assert tab.text(cell) == "[1, 2, 3, 4] '0'\n"
        assert reply["execution_count"] == 4
    assert connection_file(server, kernel) == before
    runs = server.get(f"/gpufair/sessions/{kernel}/outputs")["executions"]
    assert [run["execution_count"] for run in runs] == [1, 2, 3, 4]
    for each in (kernel, others[1]):
        assert server.call("DELETE", f"/api/kernels/{each}", timeout_s=10)[0] == 204
    wait_until(lambda: client.workload(kernel).state == "ended")


def test_a_running_session_moves_to_a_cpu_and_back(pair: Pair) -> None:
    """Asked while a cell runs, with another one queued behind it, and the service is killed in between."""
    server, client = pair
    kernel = server.new("moved.ipynb")
    before = connection_file(server, kernel)
    look = "import os\nprint(x, repr(os.environ['CUDA_VISIBLE_DEVICES']))"
    with Tab(server, kernel) as tab:
        running = tab.run("import time\nx = [1]\nprint('on')\ntime.sleep(3)\nx.append(2)")
        tab.until(lambda: tab.text(running) == "on\n")
        queued = tab.run(f"x.append(3)\n{look}")
        assert server.call("POST", f"/gpufair/sessions/{kernel}/open")[0] == 202
        assert server.session(kernel)["moving"] is True
        os.kill(service_pid(server.state_dir), signal.SIGKILL)
        for cell in (running, queued):
            assert tab.reply(cell)["status"] == "ok"
        # Begun before the move or after it, but never cut by it.
        assert tab.text(queued).startswith("[1, 2, 3] ")
        wait_until(lambda: server.session(kernel)["on_cpu"] and server.session(kernel)["state"] == "running", 60)
        cell = tab.run(f"x.append(4)\n{look}")
        assert (tab.reply(cell)["status"], tab.text(cell)) == ("ok", "[1, 2, 3, 4] ''\n")
        assert [node.free_gpus for node in client.nodes() if node.gpus] == [1, 1]
        seen = client.workload(kernel)
        assert (seen.move, seen.lost, seen.preemptions) == (None, (), 0)
        assert server.call("POST", f"/gpufair/sessions/{kernel}/resume")[0] == 202
        wait_until(lambda: not server.session(kernel)["on_cpu"], 60)
        cell = tab.run(f"x.append(5)\n{look}")
        assert (tab.reply(cell)["status"], tab.text(cell)) == ("ok", "[1, 2, 3, 4, 5] '0'\n")
        # What cannot be saved keeps it where it is.
        assert tab.reply(tab.run("gen = (i for i in 'ab')"))["status"] == "ok"
        assert server.call("POST", f"/gpufair/sessions/{kernel}/open")[0] == 202
        stayed = wait_until(lambda: server.session(kernel)["not_moved"], 60)
        assert stayed.startswith("gen (")
        cell = tab.run("print(next(gen), len(x))")
        assert (tab.reply(cell)["status"], tab.text(cell)) == ("ok", "a 5\n")
        assert server.session(kernel)["on_cpu"] is False
    assert connection_file(server, kernel) == before
    server.call("DELETE", f"/api/kernels/{kernel}", timeout_s=10)


def test_a_session_that_does_not_touch_its_gpu_is_told_so_and_moves_by_one_click(pair: Pair) -> None:
    """As long as its process holds the device open nothing is said; then it is offered a CPU node, and may decline."""
    server, client = pair
    kernel = server.new("unused.ipynb")
    device = server.home / "test-gpu-0"
    device.touch()

    def suggested() -> bool:
        return server.session(kernel)["suggestion"] is not None

    with Tab(server, kernel) as tab:
        assert tab.reply(tab.run("x = 1"))["status"] == "ok"
        wait_until(suggested, 60)
        told = server.session(kernel)["suggestion"]["text"]
        assert told == "This notebook has not used its GPU for 2 s: move it to a CPU node, and keep all variables?"
        assert told in client.why(kernel).sentence
        # Left open by a cell that has ended, as a context on a GPU is.
        assert tab.reply(tab.run(f"import os\nfd = os.open({str(device)!r}, os.O_RDONLY)"))["status"] == "ok"
        wait_until(lambda: not suggested(), 60)
        assert tab.reply(tab.run("os.close(fd)"))["status"] == "ok"
        wait_until(suggested, 60)
        assert server.call("POST", f"/gpufair/sessions/{kernel}/open")[0] == 202
        wait_until(lambda: server.session(kernel)["on_cpu"] and server.session(kernel)["state"] == "running", 60)
        assert not suggested()
        assert server.call("POST", f"/gpufair/sessions/{kernel}/resume")[0] == 202
        cell = tab.run("print(x)")
        assert (tab.reply(cell)["status"], tab.text(cell)) == ("ok", "1\n")
        wait_until(suggested, 60)
        assert server.call("POST", f"/gpufair/sessions/{kernel}/dismiss")[0] == 202
        assert not suggested()
        assert server.session(kernel)["state"] == "running"
    server.call("DELETE", f"/api/kernels/{kernel}", timeout_s=10)


def test_a_page_hears_the_cell_that_it_sends_with_its_handshake(pair: Pair) -> None:
    """Though the kernel answers everybody else already: a page that was slow to be let in is not deaf to its own cell."""
    server, _ = pair
    kernel = server.new("hasty.ipynb")
    with Tab(server, kernel) as tab:
        assert tab.reply(tab.run("x = 5"))["status"] == "ok"
    for _ in range(5):
        with Tab(server, kernel, hasty="print(x)") as tab:
            assert tab.reply(tab.hasty)["status"] == "ok"
            assert tab.text(tab.hasty) == "5\n"


def test_a_kernel_that_cannot_be_saved_is_shown_as_such_and_keeps_what_its_hooks_save(pair: Pair) -> None:
    """A plain ipykernel with a kernelspec of its own: its owner knows before, and is told after."""
    server, client = pair
    place = server.home / "data" / "kernels" / "plain"
    place.mkdir(parents=True)
    hooks = {"on_preempt": "open('kept', 'w').write(str(x))", "on_resume": "kept = open('kept').read()"}
    provisioner = {"provisioner_name": "gpufair-provisioner", "config": {"profile": "brief"}}
    spec = {
        "argv": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Plain",
        "language": "python",
        "metadata": {"gpufair": hooks, "kernel_provisioner": provisioner},
    }
    (place / "kernel.json").write_text(json.dumps(spec))
    kernel = server.new("plain.ipynb", "plain")
    with Tab(server, kernel) as tab:
        assert tab.reply(tab.run("x = 41"))["status"] == "ok"
        assert server.session(kernel)["resumable"] is False
        assert client.workload(kernel).idle_release_s is None, "its profile would release it after 2 s, with all it has"
        assert "It cannot be saved" in client.why(kernel).sentence
        assert server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 202
        server.wait_for(kernel, "parked")
        back = tab.run("print(kept, 'x' in globals())")
        assert (tab.reply(back)["status"], tab.text(back)) == ("ok", "41 False\n")
        [(name, reason)] = client.workload(kernel).lost
        assert (name, "all are lost; what its on_preempt hook saved is kept" in reason) == ("*", True)
    server.call("DELETE", f"/api/kernels/{kernel}")


def test_kill_9_restart_and_restore(pair: Pair) -> None:
    """The kernel is killed: autorestart in place, the last checkpoint is offered, and restores."""
    server, client = pair
    kernel = server.new("killed.ipynb")
    with Tab(server, kernel) as tab:
        pid = tab.run("import os\nx = 5\nprint(os.getpid())")
        assert tab.reply(pid)["status"] == "ok"
        assert server.call("POST", f"/gpufair/sessions/{kernel}/checkpoint")[0] == 202
        wait_until(lambda: server.session(kernel)["checkpoint"])
        os.kill(int(tab.text(pid)), signal.SIGKILL)
        wait_until(lambda: client.workload(kernel).generation == 2)
        gone = tab.run("print('x' in globals())")
        assert tab.reply(gone)["status"] == "ok"
        assert tab.text(gone) == "False\n"
        wait_until(lambda: server.session(kernel)["restore_offered"])
        assert server.call("POST", f"/gpufair/sessions/{kernel}/restore")[0] == 202
        wait_until(lambda: not server.session(kernel)["restore_offered"])
        back = tab.run("print(x)")
        assert tab.reply(back)["status"] == "ok"
        assert tab.text(back) == "5\n"
    assert client.workload(kernel).incarnation == 1
    server.call("DELETE", f"/api/kernels/{kernel}")


def test_an_older_checkpoint_is_restored_and_one_that_cannot_be_is_told(pair: Pair) -> None:
    """What *My sessions* asks for: into the same kernel; a damaged one changes nothing, and its owner is told why."""
    server, client = pair
    kernel = server.new("older.ipynb")
    saved = f"/gpufair/lab/mine/{kernel}/checkpoints"

    def restore(checkpoint: str) -> None:
        body = {"checkpoint": checkpoint}
        assert server.call("POST", f"/gpufair/lab/mine/{kernel}/restore", body)[0] == 202

    with Tab(server, kernel) as tab:
        for value in (1, 2):
            assert tab.reply(tab.run(f"import os\nx = {value}\npid = os.getpid()"))["status"] == "ok"
            assert server.call("POST", f"/gpufair/sessions/{kernel}/checkpoint")[0] == 202
            wait_until(lambda value=value: len(server.get(saved)["checkpoints"]) == value)
        older, newer = sorted(one["id"] for one in server.get(saved)["checkpoints"])
        assert tab.reply(tab.run("x = 3"))["status"] == "ok"

        def shown() -> str:
            cell = tab.run("print(x, pid == os.getpid())")
            assert tab.reply(cell)["status"] == "ok"
            return tab.text(cell)

        for checkpoint, value in ((older, 1), (newer, 2)):
            restore(checkpoint)
            wait_until(lambda value=value: shown() == f"{value} True\n")
        [folder] = server.state_dir.rglob(f"{kernel}/{older}")
        for file in (one for one in folder.rglob("*") if one.is_file()):
            file.write_bytes(b"damaged")
        restore(older)
        told = wait_until(lambda: client.workload(kernel).remark)
        assert told.startswith("the checkpoint was not restored: ")
        assert server.session(kernel)["reason"] == told
        assert told[1:] in client.why(kernel).sentence
        assert shown() == "2 True\n"
        restore(newer)
        wait_until(lambda: not client.workload(kernel).remark)
        assert shown() == "2 True\n"
    assert client.workload(kernel).incarnation == 1
    server.call("DELETE", f"/api/kernels/{kernel}", timeout_s=10)


def test_interrupt_restart_and_shutdown(pair: Pair) -> None:
    server, client = pair
    kernel = server.new("buttons.ipynb")
    with Tab(server, kernel) as tab:
        running = tab.run("import time\nprint('on')\ntime.sleep(60)")
        tab.until(lambda: tab.text(running) == "on\n")
        assert server.call("POST", f"/api/kernels/{kernel}/interrupt", timeout_s=10)[0] == 204
        assert tab.reply(running)["ename"] == "KeyboardInterrupt"
        assert tab.reply(tab.run("y = 1"))["status"] == "ok"
        assert server.call("POST", f"/api/kernels/{kernel}/restart", timeout_s=10)[0] == 200
        fresh = tab.run("print('y' in globals())")
        assert tab.reply(fresh)["status"] == "ok"
        assert tab.text(fresh) == "False\n"
        assert client.workload(kernel).incarnation == 1
    assert server.call("DELETE", f"/api/kernels/{kernel}", timeout_s=10)[0] == 204
    wait_until(lambda: client.workload(kernel).state == "ended")


def test_a_queue_and_its_end(pair: Pair) -> None:
    """Two GPUs, three notebooks: the third waits with its cell, and runs when one goes."""
    server = pair[0]
    one, two, three = (server.new(f"{name}.ipynb") for name in ("one", "two", "three"))
    server.wait_for(one, "running")
    server.wait_for(two, "running")
    view = server.wait_for(three, "queued")
    assert view["position"] == 1
    with Tab(server, three) as tab:
        cell = tab.run("print('mine')")
        wait_until(lambda: server.session(three)["held_cells"] == 1)
        assert server.call("DELETE", f"/api/kernels/{one}", timeout_s=10)[0] == 204
        assert tab.reply(cell)["status"] == "ok"
    for kernel in (two, three):
        assert server.call("DELETE", f"/api/kernels/{kernel}", timeout_s=10)[0] == 204


def test_service_killed_under_a_running_cell(pair: Pair) -> None:
    """kill -9 of the service: the cell goes on, the extension starts another, and the session is found again."""
    server, client = pair
    kernel = server.new("orphan.ipynb")
    with Tab(server, kernel) as tab:
        running = tab.run("import time\nfor i in range(8):\n    print(i)\n    time.sleep(0.5)")
        tab.until(lambda: tab.text(running).startswith("0\n"))
        os.kill(service_pid(server.state_dir), signal.SIGKILL)
        assert tab.reply(running)["status"] == "ok"
        assert tab.text(running) == "".join(f"{i}\n" for i in range(8))
        wait_until(lambda: server.get("/gpufair/status")["following"], 30)
        wait_until(lambda: client.workload(kernel).serving, 30)
        assert client.workload(kernel).incarnation == 1
        assert server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 202
        server.wait_for(kernel, "parked")
        back = tab.run("print(i)")
        assert tab.reply(back)["status"] == "ok"
        assert tab.text(back) == "7\n"
    server.call("DELETE", f"/api/kernels/{kernel}")


NBCLIENT = """
import sys, nbformat
from nbclient import NotebookClient
nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in sys.argv[2:]])
NotebookClient(nb, timeout=60, kernel_name=sys.argv[1]).execute()
print(nb.cells[-1].outputs[0].text)
"""


def test_only_kernels_of_the_services_profiles_are_offered(pair: Pair) -> None:
    """The specs that we ship are for the default profiles: picked here, they could only fail."""
    server, client = pair
    offered = {name for name in server.get("/api/kernelspecs")["kernelspecs"] if name.startswith("gpufair-")}
    assert offered == {f"gpufair-{profile.name}" for profile in client.profiles()}


def test_nbclient_outside_of_a_server(pair: Pair) -> None:
    """A plain kernel manager without a running loop: the relay and the calls have a thread of their own."""
    server, client = pair
    env = environment(server.home, server.state_dir) | {"GPUFAIR_USER": "ria", "PYTHONWARNINGS": "ignore"}
    place = Path(server.home, "data", "kernels", "gpufair-batch")
    place.mkdir(parents=True, exist_ok=True)
    spec = server.get("/api/kernelspecs")["kernelspecs"]["gpufair-digits"]["spec"]
    (place / "kernel.json").write_text(json.dumps(spec))
    known = {workload.id for workload in client.workloads()}
    done = subprocess.run(
        [sys.executable, "-c", NBCLIENT, "gpufair-batch", "import os; x = 6", "print(os.environ['GPUFAIR_GPUS'], x * 7)"],
        env=env, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "virtual-0 42"
    [workload] = [workload for workload in client.workloads() if workload.id not in known]
    wait_until(lambda: client.workload(workload.id).state == "ended")


def test_the_panels_show_the_lab_and_act_on_what_is_ours(pair: Pair) -> None:
    """The service's own answers; parked sessions and programs of other servers are among ours."""
    server, client = pair
    kernel = server.new("panel.ipynb")
    server.wait_for(kernel, "running")
    other = client.submit({"type": "command", "argv": ["sleep", "600"]}, gpus=1, user="ria", name="elsewhere")
    waits = client.submit({"type": "command", "argv": ["sleep", "600"]}, gpus=1, user="ria", name="waits")
    bens = client.submit({"type": "command", "argv": ["sleep", "600"]}, gpus=1, user="ben", name="bens")
    try:
        wait_until(lambda: client.workload(other.id).state == "running")
        queued = {one["id"]: one["position"] for one in server.get("/gpufair/lab/queue")["workloads"]}
        assert sorted(queued) == sorted([waits.id, bens.id])
        assert sorted(queued.values()) == [1, 2]
        assert server.get(f"/gpufair/lab/workloads/{waits.id}/why")["sentence"] == client.why(waits.id).sentence
        budgets = {one["path"]: one["gpus_held"] for one in server.get("/gpufair/lab/budgets")["allocations"]}
        assert 2 in budgets.values(), budgets
        assert {node["name"] for node in server.get("/gpufair/lab/nodes")["nodes"]} >= {"node-1", "node-2"}
        mine = {one["name"]: one for one in server.get("/gpufair/lab/mine")["sessions"]}
        assert set(mine) == {"panel.ipynb", "elsewhere", "waits"}
        assert (mine["panel.ipynb"]["here"], mine["panel.ipynb"]["path"]) == (True, "panel.ipynb")
        assert (mine["waits"]["here"], mine["waits"]["path"], mine["waits"]["state"]) == (False, None, "queued")
        ours = f"/gpufair/lab/mine/{kernel}"
        assert server.call("POST", f"{ours}/checkpoint")[0] == 202
        wait_until(lambda: server.get(f"{ours}/checkpoints")["checkpoints"])
        first = server.get(f"{ours}/checkpoints")["checkpoints"][0]["id"]
        assert server.call("POST", f"{ours}/restore", {"checkpoint": "none"})[0] == 404
        assert server.call("POST", f"{ours}/restore", {"checkpoint": first})[0] == 202
        assert server.get(f"/gpufair/lab/mine/{other.id}/log") == {"text": "", "start": 0, "after": 0, "ended": False}
        assert server.call("POST", f"{ours}/attach")[0] == 200, "it is here already"
        assert server.call("POST", f"/gpufair/lab/mine/{waits.id}/attach")[0] == 409, "it has no notebook"
        assert server.call("GET", f"/gpufair/lab/mine/{bens.id}/log")[0] == 404, "it is another's"
        assert server.call("POST", f"/gpufair/lab/mine/{waits.id}/stop")[0] == 202
        wait_until(lambda: client.workload(waits.id).state == "ended")
        assert server.call("POST", f"/gpufair/lab/mine/{waits.id}/stop")[0] == 404, "it is over"
        assert server.call("POST", f"/gpufair/lab/mine/{bens.id}/stop")[0] == 404, "it is another's"
        assert client.workload(bens.id).live
        assert server.call("GET", "/gpufair/lab/workloads/nobody/why")[0] == 404
    finally:
        for workload in (other.id, waits.id, bens.id):
            client.stop(workload)
        server.call("DELETE", f"/api/kernels/{kernel}")


def test_a_notebook_asks_about_itself(pair: Pair) -> None:
    """``%gpufair status|why|budget`` say what the command line says."""
    server, client = pair
    kernel = server.new("asks.ipynb")
    with Tab(server, kernel) as tab:
        said = {}
        for word in ("status", "why", "budget"):
            asked = tab.run(f"%gpufair {word}")
            assert tab.reply(asked)["status"] == "ok", tab.text(asked)
            said[word] = tab.text(asked)
        node = client.workload(kernel).leases[0].node
        assert f"asks.ipynb ({kernel[:8]}) is running" in said["status"]
        assert f"GPUs: 1 on {node}" in said["status"]
        assert "budget: language/digits" in said["status"]
        assert f"({kernel[:8]}) is running" in said["why"]
        assert "language/digits" in said["budget"].replace("\n", "")
        wrong = tab.run("%gpufair wyh")
        assert tab.reply(wrong)["ename"] == "UsageError"
    server.call("DELETE", f"/api/kernels/{kernel}")


def test_other_shares_are_tried_and_put_into_force(pair: Pair) -> None:
    """A server that acts for somebody else tries them only: its token may do what its user may not."""
    server, client = pair
    code, played = server.call("POST", "/gpufair/lab/whatif", {"shares": {"vision": 3}, "hours": 1}, timeout_s=60)
    assert code == 200
    accounts = {one["path"]: one for one in played["allocations"]}
    assert (accounts["vision"]["before"]["entitlement"], accounts["vision"]["after"]["entitlement"]) == (0.5, 0.75)
    wrongs: list[dict[str, Any]] = [
        {},
        {"shares": {}},
        {"shares": {"vision": -1}},
        {"shares": {"--json": 1}},
        {"shares": {"vision": 1}, "hours": 999},
    ]
    for wrong in wrongs:
        assert server.call("POST", "/gpufair/lab/whatif", wrong)[0] == 400, wrong
    code, said = server.call("POST", "/gpufair/lab/whatif", {"shares": {"nobody": 1}}, timeout_s=60)
    assert code == 422
    assert "there is no allocation 'nobody'" in said["message"]
    seen = {one.path: str(one.share) for one in client.budgets().allocations}
    assert server.call("PUT", "/gpufair/lab/divide", {"shares": {"vision": 3}, "seen": seen})[0] == 403
    assert {one.path: str(one.share) for one in client.budgets().allocations} == seen


def test_what_a_server_asks_for_is_its_users(pair: Pair) -> None:
    """Whoever the page says it is for; and decided is with the rights of that user, not with those of the token."""
    server, client = pair
    wish = {"shares": {"vision": 3}, "why": "a deadline", "user": "somebody"}
    code, made = server.call("POST", "/gpufair/lab/requests", wish)
    assert (code, made["state"], made["may"]) == (200, "open", {"decide": False, "withdraw": True})
    assert made["user"] == server.call("GET", "/gpufair/lab/requests")[1]["user"] != "somebody"
    one = f"/gpufair/lab/requests/{made['id']}"
    code, said = server.call("POST", f"{one}/accept", {})
    assert code == 403
    assert "decided by who owns the whole tree or an operator" in said["message"]
    client.decide_budget(made["id"], "refuse", "not now")
    assert server.call("GET", one)[1]["decision"]["words"] == "not now"
    assert server.call("POST", f"{one}/withdraw", {})[0] == 404
    assert server.call("POST", "/gpufair/lab/requests", {"why": "w" * 200_000})[0] in {400, 413}
    assert server.call("GET", "/gpufair/lab/requests/999")[0] == 404
    assert server.call("GET", "/gpufair/lab/budget-history?limit=1")[1]["changes"][0]["by"] == "gpufair.toml"
