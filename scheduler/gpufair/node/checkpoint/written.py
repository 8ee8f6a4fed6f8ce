"""Which memory has been written since it was last looked at, as the kernel's page tables know it (Linux >= 6.7).

Pages are write-protected in the asynchronous mode of userfaultfd: the first write to one takes the protection away
again, in the kernel, and the scan of /proc/self/pagemap tells which pages still have it. That sees every write through
the process's page tables: by numpy, by C code, by ``read``, through any view. What it cannot see is never trusted:
memory shared with other processes or a file, memory that was mapped anew, and, once such a library is loaded, anything
that a device may write to by itself.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import struct
from ctypes import pythonapi

_USERFAULTFD = {"x86_64": 323, "aarch64": 282}
_USER_MODE_ONLY = 1  # all that an unprivileged process may have, and all that is needed: no fault is handled here
_API, _REGISTER = 0xC018AA3F, 0xC020AA00
_WP_UNPOPULATED, _WP_ASYNC = 1 << 13, 1 << 15
_MODE_WP = 2
_SCAN = 0xC0606610
_SCAN_PROTECT, _SCAN_CHECK_ASYNC = 1, 2
_TRACKED, _WRITTEN, _FILE, _PRESENT, _SWAPPED = (1 << bit for bit in range(5))
_SEEN = _TRACKED | _WRITTEN | _FILE | _PRESENT | _SWAPPED
_REGIONS = 4
_ARGUMENT = struct.Struct("12Q")
_REGION = struct.Struct("3Q")

PAGE = mmap.PAGESIZE

# With one of these a device can write to pinned memory without the page tables taking note.
_DEVICE_LIBRARIES = (
    "libcuda.so.1",
    "libamdhip64.so",
    "libhsa-runtime64.so.1",
    "libze_loader.so.1",
    "libibverbs.so.1",
    "liburing.so.2",
)
_NOT_LOADING = 4  # RTLD_NOLOAD


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("rest", ctypes.c_void_p * 5),
    )


_get, _release = pythonapi.PyObject_GetBuffer, pythonapi.PyBuffer_Release
_get.argtypes = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int)
_release.argtypes = (ctypes.POINTER(_Buffer),)
_release.restype = None


def address_of(view: memoryview) -> int:
    """Where the bytes of a contiguous view lie; 0 for an empty one."""
    buffer = _Buffer()
    _get(view, ctypes.byref(buffer), 0)
    try:
        return buffer.buf or 0
    finally:
        _release(ctypes.byref(buffer))


class WrittenPages:
    """Write tracking of this process. All methods are safe from several threads."""

    def __init__(self) -> None:
        """Raises: OSError: This kernel, or the rules of this container, have no such thing."""
        self._faults = self._pagemap = -1
        number = _USERFAULTFD.get(platform.machine())
        if number is None or os.uname().sysname != "Linux":
            raise OSError("no write tracking on this platform")
        libc = ctypes.CDLL(None, use_errno=True)
        self._faults = libc.syscall(number, os.O_CLOEXEC | _USER_MODE_ONLY)
        if self._faults < 0:
            raise OSError(ctypes.get_errno(), "userfaultfd")
        self._process = os.getpid()
        try:
            fcntl.ioctl(self._faults, _API, bytearray(struct.pack("3Q", 0xAA, _WP_UNPOPULATED | _WP_ASYNC, 0)))
            self._pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            self._try()
        except OSError:
            self.close()
            raise

    def _try(self) -> None:
        """One write to one page, and it must be seen: a kernel that only seems to know all this is found out here."""
        with mmap.mmap(-1, 4 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            start = address_of(memoryview(memory))
            memory[0] = memory[PAGE] = 1
            if not self.protect(start, start + 2 * PAGE) or not self.untouched(start, start + 2 * PAGE):
                raise OSError("write tracking does not begin")
            memory[PAGE] = 2
            if self.untouched(start, start + 2 * PAGE) or not self.untouched(start, start + PAGE):
                raise OSError("write tracking does not see a write")

    def close(self) -> None:
        """End all tracking: nothing is protected any more."""
        for file in (self._faults, self._pagemap):
            if file >= 0:
                os.close(file)
        self._faults = self._pagemap = -1

    def __del__(self) -> None:
        self.close()  # memory that one watches is refused to the next

    @property
    def trusted(self) -> bool:
        """Whether the page tables see all writes there can be in this process, which is the one that began tracking."""
        if self._faults < 0 or os.getpid() != self._process:
            return False
        for name in _DEVICE_LIBRARIES:
            try:
                ctypes.CDLL(name, mode=_NOT_LOADING)
            except OSError:
                continue
            return False
        return True

    def protect(self, start: int, end: int) -> bool:
        """Take note of all writes to these pages from now on. False where the kernel will not."""
        try:
            fcntl.ioctl(self._faults, _REGISTER, bytearray(struct.pack("4Q", start, end - start, _MODE_WP, 0)))
            at = start
            while at < end:
                at = self._scan(at, end, _SCAN_PROTECT | _SCAN_CHECK_ASYNC)[1]
        except OSError:
            return False
        return True

    def untouched(self, start: int, end: int) -> bool:
        """Whether none of these pages was written, mapped anew or given away since ``protect``."""
        if self._faults < 0 or os.getpid() != self._process:
            return False
        at = start
        while at < end:
            try:
                regions, walked = self._scan(at, end, 0)
            except OSError:
                return False
            for first, last, seen in regions:
                if first != at or seen & (_TRACKED | _WRITTEN | _FILE) != _TRACKED or not seen & (_PRESENT | _SWAPPED):
                    return False
                at = last
            if at < walked:
                return False  # a hole: pages that nothing is said about
        return True

    def _scan(self, start: int, end: int, flags: int) -> tuple[list[tuple[int, ...]], int]:
        """Regions of pages that are alike, as (start, end, categories), and how far the scan came."""
        found = bytearray(_REGION.size * _REGIONS)
        where = address_of(memoryview(found))
        asked = bytearray(_ARGUMENT.pack(_ARGUMENT.size, flags, start, end, 0, where, _REGIONS, 0, 0, 0, _SEEN, _SEEN))
        count = fcntl.ioctl(self._pagemap, _SCAN, asked)
        walked = _ARGUMENT.unpack(asked)[4]
        if walked <= start:
            raise OSError("the scan of the page tables does not get on")
        return [_REGION.unpack_from(found, _REGION.size * n) for n in range(count)], walked
