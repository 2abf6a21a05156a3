"""Restrictions that a process applies to itself before it handles a hostile document.

``confine`` requests all of them and returns those that it could not get, because the kernel may lack one or forbid it:

- no new privileges: programs it starts gain no rights by set-uid (Linux 3.5);
- user, network and IPC namespaces of its own: no address can be reached, System V shared memory and message queues end
  with the process, and no capability holds outside, if an unprivileged user may create them (AppArmor on Debian and
  Ubuntu may forbid it, containers often do);
- Landlock: no file or folder can be opened, changed, created or removed, or all but reading and executing in some
  folders, and no process outside can be signalled (Linux 5.13, signals 6.12), unless the kernel was built or booted
  without it;
- no capabilities, neither now nor after execve;
- a filter of system calls (``seccomp``), on x86-64 and aarch64. It covers what Landlock does not: modes, owners and
  times of files.

The module also runs as a program, with the standard library only: it confines itself and executes another program.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import count
from pathlib import Path

from edge_rag.ingest.parsing.sandbox import seccomp


class Protection(StrEnum):
    """A restriction; its value is its name in reports."""

    NO_NEW_PRIVILEGES = "no new privileges"
    NETWORK_NAMESPACE = "network namespace"
    IPC_NAMESPACE = "IPC namespace"
    LANDLOCK = "Landlock"
    NO_CAPABILITIES = "no capabilities"
    SYSTEM_CALL_FILTER = "seccomp filter"


# linux/prctl.h, linux/sched.h, linux/capability.h
_SET_NO_NEW_PRIVILEGES = 38
_DROP_FROM_BOUNDING_SET = 24
_AMBIENT_CAPABILITIES, _CLEAR_ALL = 47, 4
_NEW_IPC, _NEW_USER, _NEW_NETWORK = 0x08000000, 0x10000000, 0x40000000
_NAMESPACES = (
    _NEW_USER | _NEW_NETWORK | _NEW_IPC,
    _NEW_USER | _NEW_NETWORK,
    _NEW_NETWORK | _NEW_IPC,
    _NEW_NETWORK,
    _NEW_IPC,
)
_CAPABILITY_VERSION = 0x20080522
_CAPABILITY_WORDS = 6

# linux/landlock.h
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


def confine(limits: Mapping[int, int], readable: Sequence[str] | None = None) -> tuple[Protection, ...]:
    """Drops every right that the kernel lets a process drop, for good.

    Args:
        readable: Files and folders that may still be read and executed, so that another program can be executed; None
            for a process that will open nothing more.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    in_force = set()
    if libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0:
        in_force.add(Protection.NO_NEW_PRIVILEGES)
    in_force.update(_enter_namespaces(libc))
    if _restrict_files(libc, readable or ()):
        in_force.add(Protection.LANDLOCK)
    _set_limits(limits)
    if _drop_capabilities(libc):
        in_force.add(Protection.NO_CAPABILITIES)
    if _filter_calls(libc, computes_only=readable is None):
        in_force.add(Protection.SYSTEM_CALL_FILTER)
    return tuple(each for each in Protection if each not in in_force)


def _enter_namespaces(libc: ctypes.CDLL) -> Iterator[Protection]:
    entered = next((flags for flags in _NAMESPACES if libc.unshare(flags) == 0), 0)
    if entered & _NEW_NETWORK:
        yield Protection.NETWORK_NAMESPACE
    if entered & _NEW_IPC:
        yield Protection.IPC_NAMESPACE


def _set_limits(limits: Mapping[int, int]) -> None:
    for kind, value in limits.items():
        _, allowed = resource.getrlimit(kind)
        limit = value if allowed == resource.RLIM_INFINITY else min(value, allowed)
        resource.setrlimit(kind, (limit, limit))


def _restrict_files(libc: ctypes.CDLL, readable: Sequence[str]) -> bool:
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
    if version < 1:
        return False
    rules = _Ruleset(
        _FILE_RIGHTS.get(version, _ALL_FILE_RIGHTS),
        _BIND_AND_CONNECT if version >= 4 else 0,
        _ABSTRACT_SOCKETS_AND_SIGNALS if version >= 6 else 0,
    )
    size = 8 * (1 + (version >= 4) + (version >= 6))
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return False
    try:
        for path in readable:
            with contextlib.suppress(OSError):
                _allow_reading(libc, ruleset, path)
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _allow_reading(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    rights = _EXECUTE | _READ_FILE | (_READ_FOLDER if Path(path).is_dir() else 0)
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = _PathRule(rights, opened)
    libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    os.close(opened)


def _drop_capabilities(libc: ctypes.CDLL) -> bool:
    for capability in count():
        if libc.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0) != 0:
            break
    libc.prctl(_AMBIENT_CAPABILITIES, _CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    return bool(libc.capset(header, (ctypes.c_uint32 * _CAPABILITY_WORDS)()) == 0)


def _filter_calls(libc: ctypes.CDLL, computes_only: bool) -> bool:
    architecture = seccomp.ARCHITECTURES.get(os.uname().machine)
    if architecture is None or ctypes.sizeof(ctypes.c_void_p) != seccomp.POINTER_BYTES:
        return False
    build = seccomp.parser_filter if computes_only else seccomp.program_filter
    return seccomp.install(libc, architecture, build(architecture, os.getpid()))


def main() -> None:
    """Executes the program in the arguments from the second on; the first is limits and readable paths as JSON."""
    settings = json.loads(sys.argv[1])
    with contextlib.suppress(OSError):
        os.nice(10)
    confine({int(kind): value for kind, value in settings["limits"].items()}, settings["readable"])
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
