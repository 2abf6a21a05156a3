"""What a decoder must at least read and multiply, and how fast this machine's limits would let it.

A roofline (Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785): a call can take no less time than its
bytes at the rate of memory, nor than its products at the rate of the processor. Every weight of a matrix is multiplied
once for each token, the head's once for each row of logits (Kaplan et al. 2020, arXiv:2001.08361, table 1), and each
token with the keys and the values of all tokens before it and its own, once in each query head:

    products(n tokens of a sequence of c, 1 row of logits)
        = n * weights + head + layers * 2 * query heads * head size * n * (c - (n - 1) / 2)

Bytes are those of the weights, once a call, and of all keys and values. Both are of the form that is assumed below, one
product of 8-bit integers for each; a program that needs two, or wider ones, is further from the limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

from edge_rag.runtime.gguf.architectures import describe_decoder
from edge_rag.runtime.gguf.file import GgufFile
from scripts.bench.kernels.ceilings import Ceilings

_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True)
class DecoderSize:
    """Elements of all matrices but embeddings and head, of the head, bytes of both; layers and heads of attention."""

    weights: int
    head: int
    weight_bytes: float
    layers: int
    query_heads: int
    kv_heads: int
    head_size: int

    @property
    def token_bytes(self) -> int:
        """Keys and values of a token in 8 bits, with a float32 scale for each head."""
        return self.layers * 2 * self.kv_heads * (self.head_size + _SCALE_BYTES)

    def least_seconds(self, ceilings: Ceilings, sequences: int, context: int, fresh: int) -> float:
        pairs = fresh * (context - (fresh - 1) / 2)
        attention = 2 * self.layers * self.query_heads * self.head_size * pairs
        products = sequences * (fresh * self.weights + self.head + attention)
        read = self.weight_bytes + sequences * context * self.token_bytes
        return max(products / ceilings.products_per_s, read / ceilings.bytes_per_s)


def size_of_file(source: Path) -> DecoderSize:
    """Reads the sizes of a GGUF file, its weights in the file's form."""
    file = GgufFile(source)
    found = describe_decoder(file, 1)
    head = "output.weight" if "output.weight" in file.tensors else "token_embd.weight"
    matrices = [one for name, one in file.tensors.items() if len(one.shape) > 1 and name.startswith("blk.")]
    return DecoderSize(
        sum(prod(one.shape) for one in matrices),
        prod(file.tensor(head).shape),
        sum(one.size for one in (*matrices, file.tensor(head))),
        len(found.layers),
        found.query_heads,
        found.kv_heads,
        found.head_size,
    )
