"""What a notebook has done to IPython and to its process holds in the next process as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.integration.kernel.conftest import LiveKernel

_CHANGES = """
import os, sys
from IPython.core.magic import Magics, line_magic, magics_class, register_cell_magic, register_line_magic
@register_line_magic
def shout(line): return line.upper() + mark
@register_cell_magic
def count(line, cell): return len(cell.splitlines())
@magics_class
class Greetings(Magics):
    @line_magic
    def greet(self, line): return 'hello ' + line
ip = get_ipython()
ip.register_magics(Greetings)
mark = '!'
%precision 3
%xmode Minimal
ip.ast_node_interactivity = 'all'
%load_ext autoreload
%autoreload 2
%alias mark_it echo %s
runs = []
def after(result): runs.append(1)
ip.events.register('post_run_cell', after)
class Money:
    def __init__(self, v): self.v = v
ip.display_formatter.formatters['text/plain'].for_type(Money, lambda m, p, cycle: p.text(f'{m.v} EUR'))
os.environ['MY_SETTING'] = 'on'; os.environ['MY_API_KEY'] = 'never to be written'; os.environ.pop('HOME', None)
os.mkdir('deeper'); os.chdir('deeper')
open('beside.py', 'w').write('x = 5'); sys.path.insert(0, os.getcwd()); import beside
"""

_CHECKS = """
import os
from math import pi
assert get_ipython().run_line_magic('shout', 'a') == 'A!'
mark = '?'
assert get_ipython().run_line_magic('shout', 'a') == 'A?', 'the magic does not see the live namespace'
assert get_ipython().run_cell_magic('count', '', 'x\\ny') == 2
assert get_ipython().run_line_magic('greet', 'you') == 'hello you'
assert ip is get_ipython()
shown = get_ipython().display_formatter.format
assert shown(pi)[0]['text/plain'] == '3.142' and shown(Money(3))[0]['text/plain'] == '3 EUR'
assert get_ipython().InteractiveTB.mode == 'Minimal' and get_ipython().ast_node_interactivity == 'all'
assert get_ipython().magics_manager.registry['AutoreloadMagics']._reloader.check_all
assert get_ipython().alias_manager.is_alias('mark_it')
assert os.environ['MY_SETTING'] == 'on' and 'MY_API_KEY' not in os.environ and 'HOME' not in os.environ
assert os.path.basename(os.getcwd()) == 'deeper' and beside.x == 5
"""


def test_what_was_done_to_the_shell_and_the_process_is_done_in_the_next_one(
    kernel: Callable[[], LiveKernel], place: dict[str, Any]
) -> None:
    first = kernel()
    reply, _ = first.run(_CHANGES)
    assert reply["status"] == "ok", reply
    saved = first.ask("gpufair_checkpoint_request", id="c1", sequence=1, **place)
    assert saved["status"] == "ok", saved
    assert saved["lost"] == []
    first.kill()

    second = kernel()
    back = second.ask("gpufair_restore_request", id="c1", **place)
    assert back["lost"] == []
    assert len(back["warnings"]) == 1
    assert "MY_API_KEY" in back["warnings"][0]
    assert "never to be written" not in str(back)
    for line in _CHECKS.strip().splitlines():
        reply, _ = second.run(line)
        assert reply["status"] == "ok", line
    second.run("before = len(runs)")
    reply, printed = second.run("print(len(runs) - before)")
    assert reply["status"] == "ok", reply
    assert printed.startswith("1\n"), "the function that is called after each cell was not called once"
    again = second.ask("gpufair_checkpoint_request", id="c2", sequence=2, **place)
    assert again["status"] == "ok", again
    assert again["lost"] == []
