"""Filters of system calls: classic BPF programs that the kernel runs at each call (seccomp(2), mode FILTER).

Two filters exist. ``parser_filter`` is for a process that only computes: it allows a short list of calls, most of them
with fixed arguments, and any other call fails with EPERM. EPERM and not the end of the process, because libraries
probe for harmless things, such as the number of processors, and go on without them. ``program_filter`` is for a
program that another one is about to become by execve: it must load libraries and read files, so it allows all calls
but those that reach beyond the program.

Calls of another architecture's table, i386 or x32 on x86-64 and 32-bit Arm on aarch64, end the process: their numbers
mean other calls.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Instruction = tuple[int, int, int, int]
"""Opcode, instructions to skip if true, if false, operand."""

# linux/bpf_common.h
LOAD_WORD: Final = 0x20
MASK: Final = 0x54
JUMP_IF_EQUAL: Final = 0x15
JUMP_IF_AT_LEAST: Final = 0x35
JUMP_IF_ANY_BIT: Final = 0x45
RETURN: Final = 0x06

# linux/seccomp.h
ALLOW: Final = 0x7FFF0000
REFUSE: Final = 0x00050000 | 1
"""Fails with EPERM."""
NOT_IMPLEMENTED: Final = 0x00050000 | 38
"""Fails with ENOSYS, after which the C library uses an older call."""
KILL: Final = 0x80000000
"""Ends the process with SIGSYS."""

POINTER_BYTES: Final = 8
"""Of a process that these filters are for; a 32-bit process on a 64-bit kernel makes calls of another table."""

_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ARGUMENT_BYTES = 8
_X32_BIT = 0x40000000
_LOW_WORD = 0xFFFFFFFF
_NO_DESCRIPTOR = 0xFFFFFFFF
_EXECUTE = 0x4
_FUTEX_FLAGS = 128 | 256
_FUTEX_WAIT, _FUTEX_WAKE, _FUTEX_WAIT_BITSET, _FUTEX_WAKE_BITSET = 0, 1, 9, 10
_NEW_NAMESPACES = 0x7E020080
"""CLONE_NEW* flags: mount, cgroup, UTS, IPC, user, PID, network and time."""
_SET_MODE_FILTER = 1


@dataclass(frozen=True, slots=True)
class Architecture:
    """A processor architecture with its table of system calls."""

    audit: int
    column: int
    seccomp: int


ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "x86_64": Architecture(0xC000003E, 0, 317),
    "aarch64": Architecture(0xC00000B7, 1, 277),
}
"""By ``os.uname().machine``."""

CALLS: Final[Mapping[str, tuple[int | None, int | None]]] = {
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "acct": (163, 89),
    "bpf": (321, 280),
    "brk": (12, 214),
    "chmod": (90, None),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "close": (3, 57),
    "delete_module": (176, 106),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "file_setattr": (469, 469),
    "finit_module": (313, 273),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "futex": (202, 98),
    "futimesat": (261, None),
    "getpid": (39, 172),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "init_module": (175, 105),
    "io_setup": (206, 0),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "lchown": (94, None),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "madvise": (28, 233),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "mmap": (9, 222),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "mprotect": (10, 226),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "mremap": (25, 216),
    "msgget": (68, 186),
    "msgctl": (71, 187),
    "msgsnd": (69, 189),
    "munmap": (11, 215),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "read": (0, 63),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "request_key": (249, 218),
    "restart_syscall": (219, 128),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigqueueinfo": (129, 138),
    "rt_sigreturn": (15, 139),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_yield": (24, 124),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "sigaltstack": (131, 132),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
    "write": (1, 64),
}
"""Numbers on x86-64 and on aarch64 by name; None where an architecture has no such call."""


def parser_filter(architecture: Architecture, process: int) -> list[Instruction]:
    """Builds the filter of a process that computes, reads descriptor 0, and writes descriptors 1 and 2.

    Memory never becomes executable and is never that of a file, no thread or process is started, and signals reach this
    process only.
    """
    rules: dict[str, Sequence[Instruction]] = {
        name: [(RETURN, 0, 0, ALLOW)]
        for name in (
            *("brk", "munmap", "mremap", "madvise", "sched_yield", "getrandom", "getpid", "gettid", "getrusage"),
            *("clock_gettime", "clock_getres", "gettimeofday", "exit", "exit_group", "close", "restart_syscall"),
            *("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack"),
        )
    }
    rules["read"] = _argument_in(0, (0,))
    rules["write"] = _argument_in(0, (1, 2))
    rules["mprotect"] = _without_bits(2, _EXECUTE)
    anonymous = [_load_argument(4), (JUMP_IF_EQUAL, 1, 0, _NO_DESCRIPTOR), (RETURN, 0, 0, REFUSE)]
    rules["mmap"] = [*anonymous, *_without_bits(2, _EXECUTE)]
    rules["futex"] = _argument_in(
        1, (_FUTEX_WAIT, _FUTEX_WAKE, _FUTEX_WAIT_BITSET, _FUTEX_WAKE_BITSET), _LOW_WORD & ~_FUTEX_FLAGS
    )
    rules["tgkill"] = _argument_in(0, (process,))
    return _program(architecture, rules, REFUSE)


def program_filter(architecture: Architecture, process: int) -> list[Instruction]:
    """Builds the filter of a program that reads files and its input: everything but calls that reach beyond it.

    Refused are changes of the mode, owner, times and attributes of files, signals, sockets, shared memory, namespaces,
    other processes' memory, keys, and interfaces that only administration needs.
    """
    allowed_anywhere = {
        *("brk", "clock_getres", "clock_gettime", "close", "exit", "exit_group", "futex", "getpid", "getrandom"),
        *("getrusage", "gettid", "gettimeofday", "madvise", "mmap", "mprotect", "mremap", "munmap", "read"),
        *("restart_syscall", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sched_yield", "sigaltstack"),
        "write",
    }
    rules: dict[str, Sequence[Instruction]] = {
        name: [(RETURN, 0, 0, REFUSE)] for name in CALLS if name not in allowed_anywhere
    }
    rules["tgkill"] = _argument_in(0, (process,))
    rules["clone"] = _without_bits(0, _NEW_NAMESPACES)
    rules["clone3"] = [(RETURN, 0, 0, NOT_IMPLEMENTED)]  # its flags are in memory, which a filter cannot read
    return _program(architecture, rules, ALLOW)


def install(libc: ctypes.CDLL, architecture: Architecture, program: Sequence[Instruction]) -> bool:
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HP", len(program), ctypes.addressof(buffer))
    return bool(libc.syscall(architecture.seccomp, _SET_MODE_FILTER, 0, header) == 0)


def _program(
    architecture: Architecture, rules: Mapping[str, Sequence[Instruction]], otherwise: int
) -> list[Instruction]:
    program: list[Instruction] = [
        (LOAD_WORD, 0, 0, _ARCHITECTURE),
        (JUMP_IF_EQUAL, 1, 0, architecture.audit),
        (RETURN, 0, 0, KILL),
        (LOAD_WORD, 0, 0, _NUMBER),
        (JUMP_IF_AT_LEAST, 0, 1, _X32_BIT),
        (RETURN, 0, 0, KILL),
    ]
    for name, rule in rules.items():
        number = CALLS[name][architecture.column]
        if number is not None:
            program += [(JUMP_IF_EQUAL, 0, len(rule), number), *rule]
    return [*program, (RETURN, 0, 0, otherwise)]


def _argument_in(index: int, values: Sequence[int], mask: int = _LOW_WORD) -> list[Instruction]:
    """Allows a call if the low 32 bits of an argument, which the kernel reads as an int, are one of some values."""
    rule: list[Instruction] = [_load_argument(index), (MASK, 0, 0, mask)]
    for value in values:
        rule += [(JUMP_IF_EQUAL, 0, 1, value), (RETURN, 0, 0, ALLOW)]
    return [*rule, (RETURN, 0, 0, REFUSE)]


def _without_bits(index: int, bits: int) -> list[Instruction]:
    """Allows a call if the low 32 bits of an argument have none of some bits."""
    return [_load_argument(index), (JUMP_IF_ANY_BIT, 1, 0, bits), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]


def _load_argument(index: int) -> Instruction:
    return LOAD_WORD, 0, 0, _ARGUMENTS + _ARGUMENT_BYTES * index
