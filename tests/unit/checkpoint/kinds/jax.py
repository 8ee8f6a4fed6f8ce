"""JAX, on two devices that are the CPU."""

from __future__ import annotations

from tests.unit.checkpoint.kinds.kind import Kinds

NEEDS = ("numpy", "jax")
KINDS: Kinds = {
    "arrays of many types": (
        "import jax, jax.numpy as jnp; ja = jnp.arange(50_000.); jb = ja; jh = jnp.ones(3, jnp.bfloat16); weak = jnp.asarray(2.)",
        "assert ja[5] == 5 and jb is ja and jh.dtype == jnp.bfloat16 and (weak + jnp.float16(1)).dtype == jnp.float16",
    ),
    "array on a chosen device": (
        "j1 = jax.device_put(jnp.ones(4), jax.devices()[1])",
        "assert j1.devices() == {jax.devices()[1]} and j1.committed",
    ),
    "array spread over devices": (
        "mesh = jax.sharding.Mesh(jax.devices(), ('x',)); jm = jax.device_put(jnp.arange(8.), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('x')))",
        "assert len(jm.devices()) == 2 and jm.sum() == 28 and jm.sharding.spec == jax.sharding.PartitionSpec('x')",
    ),
    "random keys, new and old": (
        "key = jax.random.key(3); old = jax.random.PRNGKey(3); drawn = jax.random.normal(key)",
        "assert jax.random.normal(key) == drawn and jax.random.normal(old) == drawn",
    ),
    "jitted function and its gradient": (
        "W = jnp.ones(3)\n@jax.jit\ndef loss(p, x): return ((p * x) ** 2).sum()\ngrad = jax.grad(loss); before = grad(W, W)",
        "assert (grad(W, W) == before).all(); assert loss(W, W) == 3",
    ),
    "tree of parameters": (
        "tree = {'w': W, 'inner': [W, (ja, None)]}",
        "assert tree['w'] is W and tree['inner'][1][0] is ja and len(jax.tree.leaves(tree)) == 3",
    ),
}
