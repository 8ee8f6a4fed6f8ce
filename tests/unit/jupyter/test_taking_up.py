"""A page that asks while a restarted server looks for its sessions is not told that its kernel is gone."""

from __future__ import annotations

import asyncio

import pytest
from tornado.web import HTTPError

from jupyter_gpufair.manager import GpufairKernelManager


async def test_kernels_that_may_still_be_found() -> None:
    """404 is final for JupyterLab: it gives up the cells that it waits for. 503 is not; a list without a kernel is."""
    kernels = GpufairKernelManager()
    kernels.reattached = asyncio.get_running_loop().create_future()
    with pytest.raises(HTTPError) as refused:
        kernels.kernel_model("k")
    assert refused.value.status_code == 503
    listing = asyncio.ensure_future(kernels.list_kernels())
    await asyncio.sleep(0.01)
    assert not listing.done()
    kernels.reattached.set_result(None)
    assert await listing == []
    with pytest.raises(HTTPError) as refused:
        kernels.kernel_model("k")
    assert refused.value.status_code == 404
