"""A training that was moved in the middle ends with the very numbers of one that was not."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.unit.checkpoint.two_processes import TwoProcesses

if find_spec("torch") is None and os.environ.get("GPUFAIR_REQUIRE_ALL") != "1":
    pytest.skip("torch is not installed", allow_module_level=True)

# Every source of randomness takes part: dropout, the loader's own generator, and the three global ones.
SETUP = """
import hashlib, random
import numpy as np, torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(1); np.random.seed(2); random.seed(3)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(),
                                          torch.nn.Dropout(0.3), torch.nn.Linear(64, 3))
    def forward(self, x):
        return self.layers(x)
X = torch.randn(300, 20); y = torch.randint(0, 3, (300,))
loader = DataLoader(TensorDataset(X, y), batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(4))
net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=1e-2, amsgrad=True)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.05, total_steps=100)
losses = []
def epoch():
    for xs, ys in loader:
        noise = float(np.random.rand()) * random.random()
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(xs + noise * torch.randn_like(xs)), ys)
        loss.backward()
        opt.step()
        sched.step()
        losses.append(loss.item())
def outcome():
    digest = hashlib.sha256()
    for tensor in [*net.state_dict().values(), *(v for s in opt.state.values() for v in s.values())]:
        digest.update(tensor.numpy().tobytes())
    return {"losses": losses, "weights": digest.hexdigest(), "lr": sched.get_last_lr()}
def tell():
    import json
    with open(WORK + "/outcome.json", "w") as file:
        json.dump(outcome(), file)
"""


def test_a_training_that_moves_ends_bit_for_bit_as_one_that_does_not(tmp_path: Path) -> None:
    undisturbed, moved = TwoProcesses(tmp_path / "undisturbed"), TwoProcesses(tmp_path / "moved")
    undisturbed.save(SETUP, "epoch(); epoch()", "epoch(); epoch()", "tell()")
    saved = moved.save(SETUP, "epoch(); epoch()")
    restored = moved.restore({"the rest": "epoch(); epoch(); tell()"})
    assert restored["answers"] == {"the rest": "ok"}
    assert saved["lost"] == restored["lost"] == {}
    was, now = (json.loads((place.work / "outcome.json").read_text()) for place in (undisturbed, moved))
    assert len(was["losses"]) == 40
    assert now == was
