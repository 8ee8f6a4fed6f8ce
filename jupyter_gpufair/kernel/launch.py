"""ipykernel's application with our kernel class."""

from __future__ import annotations

from ipaddress import ip_address

from ipykernel.kernelapp import IPKernelApp

from jupyter_gpufair.kernel.kernel import GpufairKernel

_PLAIN_TEXT = "Kernel is running over TCP without encryption"


def launch() -> None:
    """Run the kernel until it is shut down.

    The application is not subclassed: libraries look for the section ``IPKernelApp`` in the configuration to find out
    that they run in a notebook, and traitlets would name the section after the subclass.
    """
    app = IPKernelApp.instance(kernel_class=GpufairKernel)
    app.log.addFilter(lambda record: not (str(record.msg).startswith(_PLAIN_TEXT) and _loopback(app.ip)))
    app.initialize()  # type: ignore[no-untyped-call]
    app.start()  # type: ignore[no-untyped-call]


def _loopback(ip: str) -> bool:
    try:
        return ip_address(ip).is_loopback
    except ValueError:
        return ip == "localhost"
