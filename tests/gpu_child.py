"""The processes of ``tests.gpu_check``: one that trains, swaps and saves, and one that restores and trains on.

They talk in lines of JSON: each word on standard input is answered by one line. ``kind`` is ``cuda``, or ``cpu`` where
the check itself is tested.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any

KEY = b"gpu-check: no secret"
CHECKPOINT = "gpu-check"
STEPS_AFTER = 3


def digest(*tensors: Any) -> str:
    """Of the tensors' values, wherever they are."""
    import torch

    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy())
    return found.hexdigest()[:16]


def steps(space: dict[str, Any], count: int) -> list[float]:
    """Train on random data drawn on the device, so that its generator counts too."""
    import torch

    losses = []
    for _ in range(count):
        random = space["random"]
        data = torch.randn(64, 256, device=random.device, generator=random)
        loss = space["model"](data).square().mean()
        space["optimizer"].zero_grad()
        loss.backward()
        space["optimizer"].step()
        space["schedule"].step()
        losses.append(loss.item())
    return losses


def weights(space: dict[str, Any]) -> str:
    """A digest of all parameters, in order."""
    return digest(*space["model"].parameters())


class Trainer:
    """The first process."""

    def __init__(self, kind: str, device: str, folder: str, ballast_bytes: int) -> None:
        import torch

        torch.use_deterministic_algorithms(mode=True)
        torch.manual_seed(20261130)
        random = torch.Generator(device).manual_seed(20261130)
        self.kind, self.folder = kind, folder
        self.swapped: Any = None
        model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        base = torch.arange(ballast_bytes // 4, dtype=torch.int32, device=device)
        self.space: dict[str, Any] = {
            "model": model,
            "optimizer": optimizer,
            "schedule": torch.optim.lr_scheduler.StepLR(optimizer, 2),
            "random": random,
            "base": base,
            "view": base[1000:2000],
        }
        steps(self.space, 2)

    def facts(self, **more: Any) -> dict[str, Any]:
        """What every answer holds: the process, its memory on the device, and its values."""
        import torch

        if self.kind == "cuda":
            held = torch.cuda.memory_reserved()
        else:
            held = sum(self._tensors().values()) if self.swapped is None else 0
        values = {"weights": weights(self.space), "base": digest(self.space["base"])} if self.space else {}
        return {"pid": os.getpid(), "device_bytes": held, **values, **more}

    def _tensors(self) -> dict[int, int]:
        """Address -> bytes of all memory that tensors look into."""
        from gpufair.node.host_swap import tensors_on

        storages = [tensor.untyped_storage() for tensor in tensors_on(self.kind)]
        return {storage.data_ptr(): storage.nbytes() for storage in storages}

    def whole(self) -> list[str]:
        """What is not as it has to be between these objects."""
        space = self.space
        parameters = list(space["model"].parameters())
        known = [p for group in space["optimizer"].param_groups for p in group["params"]]
        wrong = []
        if [id(p) for p in parameters] != [id(p) for p in known]:
            wrong.append("the optimizer holds other parameters than the model")
        if any(p.device != space["optimizer"].state[p]["exp_avg"].device for p in parameters):
            wrong.append("the optimizer's state is elsewhere than its parameters")
        if any(p.grad is None or p.grad.device != p.device for p in parameters):
            wrong.append("gradients are elsewhere than their parameters")
        if space["view"].untyped_storage().data_ptr() != space["base"].untyped_storage().data_ptr():
            wrong.append("a view no longer shares its base's memory")
        return wrong

    def swap(self) -> dict[str, Any]:
        """All tensors of the device into host memory, in place."""
        from gpufair.node import host_swap

        before = [id(p) for p in self.space["model"].parameters()]
        self.swapped = host_swap.move_out(kind=self.kind, pin=self.kind == "cuda")
        wrong = self.whole()
        if before != [id(p) for p in self.space["model"].parameters()]:
            wrong.append("parameters are other objects now")
        if left := [t for t in host_swap.tensors_on("cuda") if t.nbytes]:
            wrong.append(f"{len(left)} tensors stayed on the GPU")
        return self.facts(moved_bytes=self.swapped.size_bytes, wrong=wrong)

    def back(self) -> dict[str, Any]:
        """Everything back to the device."""
        self.swapped.back()
        self.swapped = None
        wrong = self.whole()
        if self.space["base"].device.type != self.kind:
            wrong.append("tensors did not come back to the device")
        return self.facts(wrong=wrong)

    def save(self) -> dict[str, Any]:
        """A checkpoint, and then what training gives that goes on without one."""
        from gpufair.node import checkpoint

        result = checkpoint.save(self.space, directory=self.folder, id=CHECKPOINT, sequence=1, key=KEY, meta={})
        after = steps(self.space, STEPS_AFTER)
        return self.facts(
            size_bytes=result.size_bytes, duration_s=result.duration_s, lost=dict(result.lost), losses=after
        )

    def free(self) -> dict[str, Any]:
        """Let go of everything but the context."""
        import gc

        import torch

        self.space.clear()
        gc.collect()
        if self.kind == "cuda":
            torch.cuda.empty_cache()
        return self.facts()


def restored(kind: str, folder: str) -> dict[str, Any]:
    """The second process: what it has got, and how training goes on."""
    import torch

    from gpufair.node import checkpoint

    torch.use_deterministic_algorithms(mode=True)
    space: dict[str, Any] = {}
    result = checkpoint.load(space, directory=folder, id=CHECKPOINT, key=KEY)
    if result.lost:
        return {"lost": dict(result.lost)}
    trainer = Trainer.__new__(Trainer)
    trainer.kind, trainer.space, trainer.swapped = kind, space, None
    facts = trainer.facts(lost={}, device=str(space["base"].device), wrong=trainer.whole())
    return facts | {"losses": steps(space, STEPS_AFTER), "after": weights(space)}


def main() -> None:
    """``train KIND DEVICE FOLDER BYTES`` or ``restore KIND FOLDER``."""
    what, *rest = sys.argv[1:]
    if what == "restore":
        print(json.dumps(restored(*rest)), flush=True)
        sys.stdin.readline()
        return
    kind, device, folder, size = rest
    trainer = Trainer(kind, device, folder, int(size))
    print(json.dumps(trainer.facts()), flush=True)
    for word in sys.stdin:
        print(json.dumps(getattr(trainer, word.strip())()), flush=True)


if __name__ == "__main__":
    main()
