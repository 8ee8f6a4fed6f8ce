"""PyTorch."""

from __future__ import annotations

from tests.unit.checkpoint.kinds.kind import Kinds

NEEDS = ("numpy", "torch")
KINDS: Kinds = {
    "tensors of many types": (
        "import torch; ts = [torch.arange(40_000, dtype=d) for d in (torch.float32, torch.int64, torch.bfloat16, torch.float16, torch.uint8)]\n"
        "tb = torch.tensor([True]); tc = torch.tensor([1 + 2j]); te = torch.empty(0, 3); t0 = torch.tensor(4.)",
        "assert ts[0][39_999] == 39_999 and ts[2].dtype is torch.bfloat16 and tb[0] and tc[0].imag == 2 and te.shape == (0, 3) and t0.item() == 4",
    ),
    "tensors that share a storage": (
        "base = torch.arange(50_000.); cut = base[10:20]; grid = base.view(500, 100); tr = grid.t(); inside = {'v': base[::2]}; alias = base",
        "assert alias is base; cut[0] = -1; assert base[10] == -1 and grid[0, 10] == -1 and tr[10, 0] == -1 and inside['v'][5] == -1 and not tr.is_contiguous()",
    ),
    "tensor and array over one memory": (
        "import numpy as np; na = np.arange(20_000.); nt = torch.from_numpy(na); ot = torch.ones(20_000); oa = ot.numpy(); ocut = ot[5:].numpy()",
        "nt[0] = -1; assert na[0] == -1; ot[5] = 7; assert oa[5] == 7 and ocut[0] == 7",
    ),
    "views that are conjugate or negative": (
        "z = torch.tensor([1 + 2j, 3j]); zc = z.conj(); zi = zc.imag",
        "assert zc[0] == 1 - 2j and zc.is_conj() and zi[0] == -2; z[0] = 5; assert zc[0] == 5",
    ),
    "leaf with its gradient": (
        "w = torch.ones(3, requires_grad=True); (w * 2).sum().backward(); shared_grad = w.grad",
        "assert w.requires_grad and w.is_leaf and w.grad.tolist() == [2, 2, 2] and w.grad is shared_grad; (w * 1).sum().backward(); assert w.grad[0] == 3",
    ),
    "result of a computation, detached": ("loss = (w * w).sum()", "assert loss.item() == 3 and not loss.requires_grad"),
    "attributes and hooks of a tensor": (
        "hooked = torch.ones(2, requires_grad=True); hooked.tag = {'k': w}; hooked.register_hook(lambda g: g * 10)",
        "assert hooked.tag['k'] is w; hooked.sum().backward(); assert hooked.grad.tolist() == [10, 10]",
    ),
    "tensor class of the user": (
        "class MyT(torch.Tensor): pass\nmt = torch.ones(3).as_subclass(MyT); mt.name_ = 'n'",
        "assert type(mt) is MyT and mt.name_ == 'n' and type(mt + 1) is MyT",
    ),
    "sparse, quantized and meta tensors": (
        "sp = torch.eye(50).to_sparse(); csr = torch.eye(50).to_sparse_csr(); me = torch.empty(3, 4, device='meta')\n"
        "import warnings\nwith warnings.catch_warnings():\n  warnings.simplefilter('ignore'); qt = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)",
        "assert sp.to_dense().trace() == 50 and csr.to_dense().trace() == 50 and me.is_meta and me.shape == (3, 4) and qt.dequantize()[0] == 1",
    ),
    "storage, device, type, size": (
        "us = base.untyped_storage(); dev = torch.device('cpu'); dty = torch.bfloat16; sz = base.shape; cuda_dev = torch.device('cuda:3')",
        "assert us.data_ptr() == base.untyped_storage().data_ptr() and dev.type == 'cpu' and dty is torch.bfloat16 and sz == (50_000,) and torch.ones(1, device=cuda_dev)[0] == 1",
    ),
    "module of the notebook with tied parameters": (
        "class Net(torch.nn.Module):\n  def __init__(self):\n    super().__init__(); self.a = torch.nn.Linear(8, 8); self.b = torch.nn.Linear(8, 8); self.b.weight = self.a.weight\n"
        "    self.register_buffer('seen', torch.zeros(1)); self.drop = torch.nn.Dropout()\n"
        "  def forward(self, x): self.seen += 1; return self.b(self.drop(self.a(x)))\n"
        "net = Net(); net.eval(); x8 = torch.ones(2, 8); out8 = net(x8).detach()",
        "assert net.a.weight is net.b.weight and isinstance(net.a.weight, torch.nn.Parameter) and not net.training\n"
        "assert torch.equal(net(x8), out8) and net.seen.item() == 2 and len(list(net.parameters())) == 3",
    ),
    "hooks of a module": (
        "calls = []; net.a.register_forward_hook(lambda m, i, o: calls.append(1))",
        "before = len(calls); net(x8); assert len(calls) == before + 1",
    ),
    "module not yet given its size": ("lazy = torch.nn.LazyLinear(2)", "assert lazy(torch.ones(1, 5)).shape == (1, 2)"),
    "optimizer whose parameters are the module's": (
        "net2 = Net(); opt = torch.optim.AdamW(net2.parameters(), lr=0.1); net2(x8).sum().backward(); opt.step()",
        "assert opt.param_groups[0]['params'][0] is net2.a.weight and net2.a.weight in opt.state and opt.state[net2.a.weight]['step'] == 2; opt.step()",
    ),
    "schedulers": (
        "sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: 0.5 ** e); opt.step(); sched.step(); cos = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)",
        "assert sched.optimizer is opt and cos.optimizer is opt and opt.param_groups[0]['lr'] == 0.05; opt.step(); sched.step(); assert opt.param_groups[0]['lr'] == 0.025",
    ),
    "generator": (
        "g = torch.Generator().manual_seed(5); torch.rand(3, generator=g); g2 = g; gs = g.get_state(); ahead = torch.rand(3, generator=g); g.set_state(gs)",
        "assert g2 is g and torch.equal(torch.rand(3, generator=g), ahead)",
    ),
    "data loader with a seed": (
        "from torch.utils.data import DataLoader, TensorDataset, random_split, RandomSampler\n"
        "data = TensorDataset(torch.arange(100.)); tr_set, va_set = random_split(data, [80, 20], generator=torch.Generator().manual_seed(1))\n"
        "lg = torch.Generator().manual_seed(9); loader = DataLoader(tr_set, batch_size=16, shuffle=True, generator=lg); [None for _ in loader]\n"
        "ls = lg.get_state(); next_epoch = [b[0].tolist() for b in loader]; lg.set_state(ls)",
        "assert loader.generator is lg and loader.dataset is tr_set and [b[0].tolist() for b in loader] == next_epoch",
    ),
    "state dicts": (
        "sd = net.state_dict(); osd = opt.state_dict()",
        "assert sd['a.weight'].data_ptr() == net.a.weight.data_ptr(); opt.load_state_dict(osd)",
    ),
    "scaler, distributions, functions of torch": (
        "scaler = torch.amp.GradScaler('cpu'); norm = torch.distributions.Normal(0., 2.); act = torch.nn.functional.relu; fn = torch.sum",
        "assert norm.variance == 4 and act is torch.nn.functional.relu and fn is torch.sum and scaler.state_dict() is not None",
    ),
    "TorchScript": (
        "import warnings\nwith warnings.catch_warnings():\n  warnings.simplefilter('ignore'); scripted = torch.jit.trace(torch.nn.Linear(8, 2), x8)\nsc_out = scripted(x8).detach()",
        "assert torch.equal(scripted(x8), sc_out)",
    ),
    "packed and nested sequences": (
        "from torch.nn.utils.rnn import pack_sequence; pk = pack_sequence([torch.ones(3), torch.ones(1)]); params = torch.nn.ParameterList([torch.ones(2)])",
        "assert pk.batch_sizes.tolist() == [2, 1, 1] and isinstance(params[0], torch.nn.Parameter)",
    ),
    "tensor with attributes in a cycle": ("cyc = torch.ones(1); cyc.me = [cyc]", "assert cyc.me[0] is cyc"),
}
