"""Has the kernel drop what some addresses send to a listening socket, before it costs this process anything.

A program of classic BPF (McCanne and Jacobson, The BSD Packet Filter, 1993) that is attached to the socket sees each
packet that would begin a connection; see ``SO_ATTACH_FILTER`` in socket(7), which needs no rights. A connection keeps
the program that the socket had when it came, so a program never touches connections that were let in.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Final

Address = IPv4Address | IPv6Address

MOST: Final = 64
"""Addresses that one program may name; programs end at 4,096 instructions."""

# linux/filter.h, linux/bpf_common.h, asm-generic/socket.h
_SO_ATTACH_FILTER: Final = 26
_NETWORK_HEADER: Final = 0xFFF00000
_LOAD_BYTE: Final = 0x30
_LOAD_WORD: Final = 0x20
_SHIFT_RIGHT: Final = 0x74
_JUMP: Final = 0x05
_JUMP_IF_EQUAL: Final = 0x15
_RETURN: Final = 0x06

_VERSION_4: Final = 4
_SOURCE_4: Final = 12
_SOURCE_6: Final = 8
_ALL: Final = 0xFFFFFFFF

Instruction = tuple[int, int, int, int]
"""Code, instructions to skip if true, if false, operand."""


def program(barred: Sequence[Address]) -> bytes:
    """Returns a program that drops packets from these addresses and lets all others pass.

    Args:
        barred: At most ``MOST``. IPv4 addresses also count where the socket is one for both.
    """
    four: list[Instruction] = [(_LOAD_WORD, 0, 0, _NETWORK_HEADER + _SOURCE_4)]
    six: list[Instruction] = []
    for address in barred:
        if isinstance(address, IPv4Address):
            four += [(_JUMP_IF_EQUAL, 0, 1, int(address)), (_RETURN, 0, 0, 0)]
            continue
        words = struct.unpack(">4I", address.packed)
        for place, word in enumerate(words):
            six.append((_LOAD_WORD, 0, 0, _NETWORK_HEADER + _SOURCE_6 + 4 * place))
            six.append((_JUMP_IF_EQUAL, 0, 2 * (len(words) - place) - 1, word))
        six.append((_RETURN, 0, 0, 0))
    four.append((_RETURN, 0, 0, _ALL))
    six.append((_RETURN, 0, 0, _ALL))
    head: list[Instruction] = [
        (_LOAD_BYTE, 0, 0, _NETWORK_HEADER),
        (_SHIFT_RIGHT, 0, 0, 4),
        (_JUMP_IF_EQUAL, 1, 0, _VERSION_4),
        (_JUMP, 0, 0, len(four)),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in (*head, *four, *six))


def bar(listening: socket.socket, barred: Sequence[Address]) -> None:
    """Has a listening socket take no connections from these addresses, and from all others.

    Args:
        listening: The socket.
        barred: The last ``MOST`` of them count; none lets everybody in.

    Raises:
        OSError: The kernel refuses.
    """
    code = program(barred[-MOST:])
    kept = ctypes.create_string_buffer(code, len(code))
    described = struct.pack("HP", len(code) // 8, ctypes.addressof(kept))
    listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)
