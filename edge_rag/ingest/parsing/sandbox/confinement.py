"""Kernel restrictions that a process applies to itself before it handles a hostile document.

``confine`` requests all of them and accepts that a kernel may not have some:

- no new privileges: programs it starts gain no rights by set-uid (Linux 3.5);
- Landlock: no file or folder can be opened, changed, created or removed, or all but reading and executing, and no
  process outside can be signalled (Linux 5.13, signals 6.12), unless the kernel was built or booted without it;
- user and network namespaces of its own: no address can be reached, and no capability holds outside, if an unprivileged
  user may create them (AppArmor on Debian and Ubuntu may forbid it, containers often do).

The module also runs as a program, with the standard library only: it sets limits, confines itself and executes another
program.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import sys
from collections.abc import Mapping

_SET_NO_NEW_PRIVILEGES = 38
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_EXECUTE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 2, 1 << 3
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_FILE_RIGHTS = (1 << 16) - 1
_BIND_AND_CONNECT = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def confine(may_read: bool) -> None:
    """Drops every right that the kernel lets a process drop. Linux only; does nothing elsewhere.

    Args:
        may_read: Whether files may still be read and executed, as another program needs.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    libc.unshare(_NEW_USER | _NEW_NETWORK)
    _restrict_files(libc, may_read)


def set_limits(limits: Mapping[int, int]) -> None:
    """Lowers resource limits permanently; a limit that is lower already stays.

    Args:
        limits: Values by resource number.
    """
    for kind, value in limits.items():
        _, allowed = resource.getrlimit(kind)
        limit = value if allowed == resource.RLIM_INFINITY else min(value, allowed)
        resource.setrlimit(kind, (limit, limit))


def _restrict_files(libc: ctypes.CDLL, may_read: bool) -> None:
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
    if version < 1:
        return
    rules = _Ruleset(
        _FILE_RIGHTS.get(version, _ALL_FILE_RIGHTS),
        _BIND_AND_CONNECT if version >= 4 else 0,
        _ABSTRACT_SOCKETS_AND_SIGNALS if version >= 6 else 0,
    )
    size = 8 * (1 + (version >= 4) + (version >= 6))
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return
    try:
        if may_read:
            folder = os.open("/", os.O_PATH | os.O_CLOEXEC)
            rule = _PathRule(_EXECUTE | _READ_FILE | _READ_FOLDER, folder)
            libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
            os.close(folder)
        libc.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def main() -> None:
    """Executes the program in the arguments from the second on, under the limits in the first, which is JSON."""
    set_limits({int(kind): value for kind, value in json.loads(sys.argv[1]).items()})
    with contextlib.suppress(OSError):
        os.nice(10)
    confine(may_read=True)
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
