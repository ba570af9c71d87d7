"""Takes from Python what macOS does not have. In a folder of its own, which a test puts first on PYTHONPATH: then Python runs it
at the start of a process, and of all that this process starts.

The lists are of Python's documentation ("Availability: Linux") and typeshed. Linux's kernel is under it all the same, so this
shows that nothing asks for these names or files, not that macOS behaves as DyOrc expects.
"""

import ctypes
import fcntl
import mmap
import os
import resource
import select
import selectors
import signal
import socket
import sys
import sysconfig
import time
import types

_MISSING = {
    os: "CLONE_ EFD_ MFD_ O_DIRECT O_NOATIME O_PATH O_TMPFILE O_LARGEFILE POSIX_FADV_ RWF_ SCHED_ SPLICE_ XATTR_ TFD_ PIDFD_ "
    "copy_file_range eventfd fdatasync getrandom getresgid getresuid getxattr listxattr memfd_create pidfd_open pipe2 "
    "posix_fadvise posix_fallocate "
    "removexattr sched_get sched_param sched_rr sched_set setns setresgid setresuid setxattr splice timerfd_ unshare",
    select: "EPOLL epoll POLLRDHUP",
    signal: "SIGCLD SIGPOLL SIGPWR SIGRT SIGSTKFLT pidfd_send_signal sigtimedwait sigwaitinfo",
    socket: "AF_ALG AF_CAN AF_NETLINK AF_PACKET AF_QIPCRTR AF_RDS AF_TIPC AF_VSOCK ALG_ BDADDR_ CAN_ "
    "MSG_CMSG_CLOEXEC MSG_CONFIRM MSG_ERRQUEUE MSG_FASTOPEN MSG_MORE MSG_NOSIGNAL NETLINK_ PACKET_ SCM_CREDENTIALS "
    "SOCK_CLOEXEC SOCK_NONBLOCK SO_BINDTODEVICE SO_DOMAIN "
    "SO_INCOMING_CPU SO_MARK SO_PASSCRED SO_PASSSEC SO_PEERCRED SO_PEERSEC SO_PRIORITY SO_PROTOCOL TCP_CONGESTION TCP_CORK "
    "TCP_DEFER_ACCEPT TCP_INFO TCP_LINGER2 TCP_QUICKACK TCP_SYNCNT TCP_USER_TIMEOUT TCP_WINDOW_CLAMP TIPC_",
    mmap: "MADV_DODUMP MADV_DOFORK MADV_DONTDUMP MADV_DONTFORK MADV_HUGEPAGE MADV_HWPOISON MADV_MERGEABLE "
    "MADV_NOHUGEPAGE MADV_REMOVE MADV_SOFT_OFFLINE MADV_UNMERGEABLE MAP_DENYWRITE MAP_EXECUTABLE MAP_GROWSDOWN MAP_HUGETLB "
    "MAP_LOCKED MAP_NONBLOCK MAP_POPULATE MAP_STACK",
    resource: "RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_OFILE RLIMIT_RTPRIO RLIMIT_RTTIME RLIMIT_SIGPENDING RUSAGE_THREAD prlimit",
    time: "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
    fcntl: "DN_ F_ADD_SEALS F_GETLEASE F_GETPIPE_SZ F_GET_SEALS F_NOTIFY F_OFD_ F_SEAL_ F_SETLEASE F_SETPIPE_SZ",
}
_HIDDEN = (b"/proc", b"/dev/shm", b"/sys")
_CLONE_NEWNS = 0x20000
_MS_PRIVATE_OF_ALL = 0x40000 | 0x4000
_IS_HIDDEN = "_DYORC_TEST_FILES_ARE_HIDDEN"
"""Set for processes below the first one, which are in its mount namespace."""


def _take_names() -> None:
    for module, names in _MISSING.items():
        for name in dir(module):
            if name.startswith(tuple(names.split())):
                delattr(module, name)
    del selectors.EpollSelector  # which `socket` has brought
    selectors.DefaultSelector = selectors.PollSelector  # pyright: ignore[reportAttributeAccessIssue]
    if sys.version_info >= (3, 13):
        os.process_cpu_count = os.cpu_count  # which asked for the affinity


def _hide_files() -> None:
    """Gives this process empty folders instead of those of Linux. Only root may; others keep them."""
    if os.geteuid() != 0 or os.environ.get(_IS_HIDDEN):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) == 0 and libc.mount(None, b"/", None, _MS_PRIVATE_OF_ALL, None) == 0:
        hidden = [libc.mount(b"none", folder, b"tmpfs", 0, b"mode=000,ro,size=4k") == 0 for folder in _HIDDEN]
        os.environ[_IS_HIDDEN] = "1" if all(hidden) else ""


def _name_the_system() -> None:
    sysconfig.get_config_vars()  # from a file whose name has the system's in it
    sys.platform = "darwin"
    proxies = types.ModuleType("_scproxy")  # urllib asks it for macOS's settings
    proxies.__dict__.update(_get_proxy_settings=lambda: {"exclude_simple": True, "exceptions": []}, _get_proxies=dict)
    sys.modules["_scproxy"] = proxies


_take_names()
_hide_files()
_name_the_system()
