"""A socket filter that drops the packets of banned networks in the kernel.

A classic BPF program (McCanne and Jacobson, The BSD Packet Filter, 1993) attached to a listening socket sees each
packet that opens a connection; see ``SO_ATTACH_FILTER`` in socket(7), which needs no privileges. An accepted connection
keeps the program that the socket had at that time, so that later programs do not affect it.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Final

Network = IPv4Network | IPv6Network

MAX_INSTRUCTIONS: Final = 1200
"""Length of a program: 592 IPv4 addresses or 236 networks /64. Linux allows 4,096 instructions, and 20 KiB of memory
for them (``net.core.optmem_max``)."""

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


def build_program(banned: Sequence[Network]) -> bytes:
    """Builds a program that drops packets from these networks and accepts all others.

    Args:
        banned: IPv4 addresses, which also match on dual-stack sockets, and IPv6 networks whose prefix has whole words
            of 32 bits. The last ones that fit into ``MAX_INSTRUCTIONS`` apply.
    """
    four: list[Instruction] = []
    six: list[Instruction] = []
    for network in reversed(banned):
        (four if network.version == _VERSION_4 else six).extend(_drop(network))
        if len(four) + len(six) > MAX_INSTRUCTIONS - _OTHER_INSTRUCTIONS:
            break
    four = [(_LOAD_WORD, 0, 0, _NETWORK_HEADER + _SOURCE_4), *four, (_RETURN, 0, 0, _ALL)]
    six.append((_RETURN, 0, 0, _ALL))
    head: list[Instruction] = [
        (_LOAD_BYTE, 0, 0, _NETWORK_HEADER),
        (_SHIFT_RIGHT, 0, 0, 4),
        (_JUMP_IF_EQUAL, 1, 0, _VERSION_4),
        (_JUMP, 0, 0, len(four)),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in (*head, *four, *six))


_OTHER_INSTRUCTIONS: Final = 16
"""Instructions besides those of the networks, and of one network."""


def _drop(network: Network) -> list[Instruction]:
    """Returns the instructions that drop a packet from a network. Those for IPv4 expect the source in the register."""
    if isinstance(network, IPv4Network):
        return [(_JUMP_IF_EQUAL, 0, 1, int(network.network_address)), (_RETURN, 0, 0, 0)]
    words = struct.unpack(">4I", network.network_address.packed)[: network.prefixlen // 32]
    code: list[Instruction] = []
    for index, word in enumerate(words):
        code.append((_LOAD_WORD, 0, 0, _NETWORK_HEADER + _SOURCE_6 + 4 * index))
        code.append((_JUMP_IF_EQUAL, 0, 2 * (len(words) - index) - 1, word))
    return [*code, (_RETURN, 0, 0, 0)]


def attach_filter(listening: socket.socket, banned: Sequence[Network]) -> None:
    """Makes a listening socket accept connections from all but these networks.

    Args:
        banned: As for ``build_program``; empty to accept all.
    """
    code = build_program(banned)
    buffer = ctypes.create_string_buffer(code, len(code))
    descriptor = struct.pack("HP", len(code) // 8, ctypes.addressof(buffer))
    listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, descriptor)
