"""A program that confines itself as the document parser does and then tries to reach beyond itself.

Arguments: the path of a file of the daemon, and ``confined`` or ``free``. It prints the error number of each attempt by
name as JSON, 0 for success. ``free`` skips the confinement and what cannot be undone: it shows that the attempts work.
"""

import ctypes
import errno
import json
import mmap
import os
import sys
from collections.abc import Callable

from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.sandbox import worker
from edge_rag.ingest.parsing.sandbox.seccomp import ARCHITECTURES, CALLS

_AT_FDCWD = -100
_PAGE = 4096
_IPC_PRIVATE, _IPC_CREATE, _IPC_REMOVE = 0, 0o1600, 0
_NEW_USER = 0x10000000
_SIGCHLD = 17
_PRLIMIT64 = {"x86_64": 302, "aarch64": 261}
_MACHINE = os.uname().machine
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def call(name: str, *arguments: object) -> int:
    number = CALLS[name][ARCHITECTURES[_MACHINE].column]
    if number is None:
        ctypes.set_errno(errno.EPERM)
        return -1
    return raw(number, *arguments)


def raw(number: int, *arguments: object) -> int:
    converted = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    ctypes.set_errno(0)
    return int(_libc.syscall(ctypes.c_long(number), *converted))


def removed(identifier: int, control: str, *arguments: object) -> int:
    if identifier >= 0:
        call(control, identifier, *arguments)
    return identifier


def forked() -> int:
    child = int(_libc.fork())
    if child == 0:
        os._exit(0)
    if child > 0:
        os.waitpid(child, 0)
    return child


def shared_memory() -> int:
    return removed(call("shmget", _IPC_PRIVATE, _PAGE, _IPC_CREATE), "shmctl", _IPC_REMOVE, 0)


def executable_page() -> int:
    return call("mmap", 0, _PAGE, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)


def page_made_executable() -> int:
    address = call("mmap", 0, _PAGE, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    return call("mprotect", address, _PAGE, mmap.PROT_READ | mmap.PROT_EXEC)


def attempts(path: bytes, inherited: int) -> dict[str, Callable[[], int]]:
    """Returns the attempts that a free process can make without harm."""
    parent = os.getppid()
    by_descriptor = b"/proc/self/fd/%d" % inherited
    space = (ctypes.c_char * 64)()
    return {
        "chmod by path": lambda: call("fchmodat", _AT_FDCWD, path, 0o777),
        "chmod by /proc/self/fd": lambda: call("fchmodat", _AT_FDCWD, by_descriptor, 0o777),
        "chmod by descriptor": lambda: call("fchmod", inherited, 0o777),
        "utime by path": lambda: call("utimensat", _AT_FDCWD, path, bytes(32), 0),
        "utime by /proc/self/fd": lambda: call("utimensat", _AT_FDCWD, by_descriptor, bytes(32), 0),
        "chown by path": lambda: call("fchownat", _AT_FDCWD, path, os.getuid(), os.getgid(), 0),
        "chown by descriptor": lambda: call("fchown", inherited, -1, -1),
        "write to an inherited descriptor": lambda: call("write", inherited, b"x", 1),
        "map an inherited descriptor": lambda: call(
            "mmap", 0, _PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, inherited, 0
        ),
        "read an inherited descriptor": lambda: call("read", inherited, space, 1),
        "System V shared memory": shared_memory,
        "System V semaphores": lambda: removed(call("semget", _IPC_PRIVATE, 1, _IPC_CREATE), "semctl", 0, _IPC_REMOVE),
        "System V messages": lambda: removed(call("msgget", _IPC_PRIVATE, _IPC_CREATE), "msgctl", _IPC_REMOVE, 0),
        "signal the parent": lambda: call("kill", parent, 0),
        "signal a thread of the parent": lambda: call("tgkill", parent, parent, 0),
        "a handle of the parent": lambda: call("pidfd_open", parent, 0),
        "limits of the parent": lambda: raw(_PRLIMIT64[_MACHINE], parent, 0, 0, ctypes.byref(space)),
        "limits of its own": lambda: raw(_PRLIMIT64[_MACHINE], 0, 0, 0, ctypes.byref(space)),
        "a socket": lambda: call("socket", 1, 1, 0),
        "a pair of sockets": lambda: call("socketpair", 1, 1, 0, space),
        "a process": forked,
        "a file in memory": lambda: call("memfd_create", b"x", 0),
        "executable memory": executable_page,
        "memory made executable": page_made_executable,
        "a key": lambda: call("keyctl", 0, -3, 1),
        "a handle of a file": lambda: call("name_to_handle_at", _AT_FDCWD, path, (ctypes.c_int * 40)(128), space, 0),
    }


def final_attempts(path: bytes) -> dict[str, Callable[[], int]]:
    """Returns the attempts that would change a free process, or need rights that the test may lack."""
    parent = os.getppid()
    empty = (ctypes.c_char * 256)()
    architecture = ARCHITECTURES[_MACHINE]
    return {
        "open a file": lambda: int(_libc.open(path, os.O_RDONLY)),
        "remove a file": lambda: int(_libc.unlink(path)),
        "rename a file": lambda: int(_libc.rename(path, path + b"2")),
        "make a folder": lambda: int(_libc.mkdir(path + b"d", 0o700)),
        "link a file": lambda: int(_libc.link(path, path + b"l")),
        "set an attribute": lambda: call("setxattr", path, b"user.x", b"1", 1, 0),
        "execute a program": lambda: int(_libc.execve(b"/bin/true", ctypes.c_void_p(), ctypes.c_void_p())),
        "open by handle": lambda: call("open_by_handle_at", 3, empty, 0),
        "trace the parent": lambda: call("ptrace", 16, parent, 0, 0),
        "read the parent's memory": lambda: call("process_vm_readv", parent, empty, 1, empty, 1, 0),
        "take a descriptor of the parent": lambda: call("pidfd_getfd", 3, 0, 0),
        "queue a signal": lambda: call("rt_sigqueueinfo", parent, 0, empty),
        "a user namespace": lambda: call("unshare", _NEW_USER),
        "a process in a user namespace": lambda: call("clone", _NEW_USER | _SIGCHLD, 0, 0, 0, 0),
        "a process by clone3": lambda: call("clone3", empty, 64),
        "another namespace": lambda: call("setns", 3, 0),
        "io_uring": lambda: call("io_uring_setup", 1, empty),
        "userfaultfd": lambda: call("userfaultfd", 1),
        "add a key": lambda: call("add_key", b"user", b"edge-rag-test", b"x", 1, -3),
        "bpf": lambda: call("bpf", 0, empty, 64),
        "performance events": lambda: call("perf_event_open", empty, 0, -1, -1, 0),
        "mount": lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, 0),
        "strict mode": lambda: raw(architecture.seccomp, 0, 0, 0),
        "dumpable": lambda: int(_libc.prctl(4, 1, 0, 0, 0)),
        "keep capabilities": lambda: int(_libc.prctl(8, 1, 0, 0, 0)),
        "capabilities": lambda: int(_libc.capset(empty, empty)),
        "another user": lambda: int(_libc.setuid(0)),
        "control a terminal": lambda: int(_libc.ioctl(0, 0x5412, empty)),
        "another personality": lambda: int(_libc.personality(0)),
    }


def main() -> None:
    path, mode = os.fsencode(sys.argv[1]), sys.argv[2]
    inherited = os.open(path, os.O_RDWR)
    tried, final = attempts(path, inherited), final_attempts(path)
    if mode == "foreign call":
        worker._drop_rights(ParsingLimits())
        raw(0x40000000 | 39)
        return
    lacked: tuple[str, ...] = ()
    if mode == "confined":
        lacked = worker._drop_rights(ParsingLimits())
        tried |= final
    failed = {}
    for what, attempt in tried.items():
        failed[what] = ctypes.get_errno() if attempt() == -1 else 0
    os.write(1, json.dumps({"failed": failed, "lacked": lacked}).encode())


if __name__ == "__main__":
    main()
