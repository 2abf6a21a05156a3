"""A socket filter that drops the packets of banned addresses in the kernel.

A classic BPF program (McCanne and Jacobson, The BSD Packet Filter, 1993) attached to a listening socket sees each
packet that opens a connection; see ``SO_ATTACH_FILTER`` in socket(7), which needs no privileges. An accepted connection
keeps the program that the socket had at that time, so that later programs do not affect it.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Final

Address = IPv4Address | IPv6Address

MAX_ADDRESSES: Final = 64
"""Addresses in one program; programs are limited to 4,096 instructions."""

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
"""Opcode, instructions to skip if true, if false, operand."""


def build_program(banned: Sequence[Address]) -> bytes:
    """Builds a program that drops packets from these addresses and accepts all others.

    Args:
        banned: At most ``MAX_ADDRESSES``. IPv4 addresses also match on dual-stack sockets.
    """
    four: list[Instruction] = [(_LOAD_WORD, 0, 0, _NETWORK_HEADER + _SOURCE_4)]
    six: list[Instruction] = []
    for address in banned:
        if isinstance(address, IPv4Address):
            four += [(_JUMP_IF_EQUAL, 0, 1, int(address)), (_RETURN, 0, 0, 0)]
            continue
        words = struct.unpack(">4I", address.packed)
        for index, word in enumerate(words):
            six.append((_LOAD_WORD, 0, 0, _NETWORK_HEADER + _SOURCE_6 + 4 * index))
            six.append((_JUMP_IF_EQUAL, 0, 2 * (len(words) - index) - 1, word))
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


def attach_filter(listening: socket.socket, banned: Sequence[Address]) -> None:
    """Makes a listening socket accept connections from all but these addresses.

    Args:
        listening: The socket.
        banned: The last ``MAX_ADDRESSES`` apply; empty to accept all.

    Raises:
        OSError: The kernel refuses.
    """
    code = build_program(banned[-MAX_ADDRESSES:])
    buffer = ctypes.create_string_buffer(code, len(code))
    descriptor = struct.pack("HP", len(code) // 8, ctypes.addressof(buffer))
    listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, descriptor)
