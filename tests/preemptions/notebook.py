"""A notebook without an end, whose result depends on every step of it: a step lost or done twice shows in the digest."""

from __future__ import annotations

import json
import subprocess
import sys

SETUP = """
import asyncio, hashlib, random, threading, time
from dataclasses import dataclass, field
import numpy as np
import gpufair

pause = time.sleep
random.seed(3); np.random.seed(3)
rng = random.Random(7)
done, total, marker, steps = 0, 0, 0, 0
data = np.arange(200, dtype=float)
big = np.zeros(1 << 17)
window = big[10:20]
tree = {'items': [], 'self': None}
tree['self'] = tree

@dataclass
class Account:
    sum: float = 0.0
    log: list = field(default_factory=list)
    def add(self, value):
        self.sum += value
        self.log.append(round(value, 6))
        return LIMIT

LIMIT = 5
account = Account()
alias = account

class Slow:
    'Saved and loaded slowly enough to be killed meanwhile.'
    def __init__(self): self.value = 1
    def __getstate__(self):
        pause(0.03)
        return dict(self.__dict__)
    def __setstate__(self, state):
        self.__dict__.update(state)
        time.sleep(0.03)

slow = [Slow() for _ in range(3)]
guard = threading.Lock()

def counter():
    count = 0
    def bump():
        nonlocal count
        count += 1
        return count
    return bump

bump = counter()
"""

# {k} is the number of the cell. What may be cut in the middle changes nothing before its last line.
CELLS = [
    "account.add(rng.random()); big[{k}] += random.random(); window[{k} % 10] += 1; done = {k}",
    "for i in gpufair.resumable(range(40)):\n"
    "    pause(0.01)\n    total += i * {k}; data[i] += np.random.rand(); tree['items'].append(i)\ndone = {k}",
    "for i in gpufair.resumable(range(4), 'rows'):\n"
    "    for j in gpufair.resumable([1, 2, 3], 'columns'):\n        pause(0.02)\n        account.add(i + j * rng.random())\n"
    "    data[i] += bump()\ndone = {k}",
    "def work():\n    found = 0\n    for n in range(100):\n        pause(0.01)\n        found += n\n    return found\n"
    "found = work()\nbig[found % 1000] += 1; total += found; done = {k}",
    "await asyncio.sleep(pause(0.3) or 0.001)\ntotal += LIMIT; slow[{k} % 3].value += bump(); done = {k}",
    "scratch = (c for c in 'abc'); total += len(list(scratch)); data *= 1.0001; done = {k}",
    "for letter in gpufair.resumable('abcdefgh'):\n    pause(0.03)\n    tree['items'].append(letter + str(rng.randrange(100)))\n"
    "done = {k}",
    "if marker != {k}: marker, steps = {k}, 0\n"
    "while steps < 25:\n    pause(0.02)\n    total += steps * {k}; steps += 1\n    gpufair.safe_point()\ndone = {k}",
]

# Each part by itself, so that a difference says where it is.
PARTS = {
    "done": "done",
    "total": "total",
    "own generator": "rng.random()",
    "random": "random.random()",
    "numpy": "np.random.rand()",
    "data": "data.tolist()",
    "big": "big.tolist()",
    "items": "tree['items']",
    "account": "account",
    "slow": "[s.value for s in slow]",
    "closure": "bump()",
    "identities": "(alias is account, np.shares_memory(window, big), tree['self'] is tree, isinstance(account, Account))",
    "globals": "account.add(1)",
}
DIGEST = (
    "__import__('json').dumps({name: hashlib.sha256(repr(eval(part)).encode()).hexdigest()[:16] for name, part in "
    + repr(list(PARTS.items()))
    + "})"
)

_RUN = """
import ast, asyncio, sys
from tests.preemptions.notebook import SETUP, DIGEST, cell
names = {'__name__': '__main__'}
exec(SETUP, names)
names['pause'] = lambda s: None
for k in range(1, int(sys.argv[1]) + 1):
    result = eval(compile(cell(k), f'cell-{k}', 'exec', ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if result is not None:
        asyncio.run(result)
print(eval(DIGEST, names))
"""


def cell(number: int) -> str:
    """The cell with this number, from 1 on."""
    return CELLS[number % len(CELLS)].replace("{k}", str(number))


def undisturbed(count: int) -> dict[str, str]:
    """The digests of all parts after ``count`` cells in one plain process, outside gpufair."""
    ran = subprocess.run(
        [sys.executable, "-c", _RUN, str(count)], capture_output=True, text=True, check=True, timeout=600
    )
    found: dict[str, str] = json.loads(ran.stdout)
    return found
