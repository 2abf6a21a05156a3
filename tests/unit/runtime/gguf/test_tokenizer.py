"""Tokenizers rebuilt from metadata encode texts of many scripts as the originals do."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.gguf.file import GgufFile
from edge_rag.runtime.gguf.tokenizer import read_tokenizer
from tests.synthetic.tiny_gguf import SPECIAL, VOCABULARY, tiny_model

SENTENCES = [
    "The pump bearings must be greased every 2,000 operating hours; it's in the manual.",
    "Die Lager der Pumpe müssen geschmiert werden. Größe: 12,5 mm",
    "Подшипники насоса смазывают каждые 500 часов.",
    "必须每周检查一次水泵。打开盖子之前关闭阀门。",
    "ポンプは毎週点検します。", "펌프를 매주 점검하십시오.",
    "يجب فحص المضخة كل أسبوع.", "पंप की हर सप्ताह जाँच करें।", "ต้องตรวจสอบปั๊มทุกสัปดาห์",
    "def f(x):\n\n    return x  # 100% \t🙂\r\n",
]  # fmt: skip


def rebuilt(folder: Path, **metadata: object) -> Tokenizer:
    model = tiny_model("llama")
    values = {key: value for key, value in model.metadata.items() if not key.startswith("tokenizer.")}
    values |= {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
    return read_tokenizer(GgufFile(type(model)("llama", values, model.tensors).write(folder / "tokenizer.gguf")))


def trained(kind: models.Model, **parts: object) -> Tokenizer:
    tokenizer = Tokenizer(kind)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "qwen2", "llama-bpe", "gpt-4o", "tekken"])
def test_a_byte_level_bpe_encodes_and_decodes_every_script(pre: str, tmp_path: Path) -> None:
    original = trained(models.BPE(), pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False))
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=list(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    original.train_from_iterator(SENTENCES, trainer)
    ids = original.get_vocab()
    tokens = sorted(ids, key=lambda token: ids[token])
    merges = [" ".join(pair) for pair in json.loads(original.to_str())["model"]["merges"]]
    kinds = [3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL))
    tokenizer = rebuilt(tmp_path, model="gpt2", pre=pre, tokens=tokens, token_type=kinds, merges=merges)
    assert tokenizer.get_vocab() == ids
    for sentence in SENTENCES:
        found = tokenizer.encode(sentence, add_special_tokens=False)
        assert tokenizer.decode(found.ids) == sentence
        if pre == "gpt-2":
            assert found.ids == original.encode(sentence, add_special_tokens=False).ids
    assert tokenizer.encode("<|im_end|>").ids == [2]


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("gpt-2", "a 1234", ["a", "Ġ1234"]),
        ("smollm", "a 1234", ["a", "Ġ", "1", "2", "3", "4"]),
        ("qwen2", "a 1234", ["a", "Ġ", "1", "2", "3", "4"]),
        ("llama-bpe", "a 1234", ["a", "Ġ", "123", "4"]),
        ("llama-bpe", "It's\n\n x", ["It", "'s", "ĊĊ", "Ġx"]),
        ("gpt-4o", "HelloWorld's 1234", ["Hello", "World's", "Ġ", "123", "4"]),
        ("tekken", "HelloWorld 12", ["Hello", "World", "Ġ", "1", "2"]),
    ],
)
def test_texts_are_divided_as_the_model_family_does(pre: str, text: str, pieces: list[str], tmp_path: Path) -> None:
    tokenizer = rebuilt(tmp_path, model="gpt2", pre=pre, tokens=list(VOCABULARY), merges=["a b"])
    assert tokenizer.pre_tokenizer is not None
    assert [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)] == pieces


@pytest.mark.parametrize("prefix", [True, False])
def test_a_sentencepiece_bpe_follows_from_the_scores_of_its_pieces(prefix: bool, tmp_path: Path) -> None:
    spaces = [normalizers.Prepend("\u2581")] if prefix else []
    original = trained(
        models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        normalizer=normalizers.Sequence([*spaces, normalizers.Replace(" ", "\u2581")]),
    )
    bytes_ = [f"<0x{value:02X}>" for value in range(256)]
    original.train_from_iterator(
        SENTENCES[:3] * 3, trainers.BpeTrainer(vocab_size=600, special_tokens=["<unk>", "<s>", "</s>", *bytes_])
    )
    ids = original.get_vocab()
    tokens = sorted(ids, key=lambda token: ids[token])
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]
    scores = [-float(number) for number in range(len(tokens))]
    tokenizer = rebuilt(
        tmp_path, model="llama", tokens=tokens, token_type=kinds, scores=scores, add_space_prefix=prefix
    )
    for sentence in SENTENCES:
        found = tokenizer.encode(sentence, add_special_tokens=False)
        assert tokenizer.decode(found.ids) == sentence
    for sentence in SENTENCES[:3]:
        assert tokenizer.encode(sentence).tokens == original.encode(sentence).tokens


def test_a_unigram_is_the_same_model(tmp_path: Path) -> None:
    original = trained(models.Unigram(), pre_tokenizer=pre_tokenizers.Metaspace(), decoder=decoders.Metaspace())
    original.train_from_iterator(
        SENTENCES * 3, trainers.UnigramTrainer(vocab_size=300, special_tokens=["<unk>", "</s>"], unk_token="<unk>")
    )
    # Files have float32, and where two divisions of a text are equally good, rounding decides.
    vocabulary = [(piece, float(np.float32(score))) for piece, score in json.loads(original.to_str())["model"]["vocab"]]
    original.model = models.Unigram(vocabulary, 0, False)
    tokenizer = rebuilt(
        tmp_path,
        model="t5",
        tokens=[piece for piece, _ in vocabulary],
        token_type=[2, 3, *[1] * (len(vocabulary) - 2)],
        scores=[float(score) for _, score in vocabulary],
    )
    for sentence in SENTENCES:
        assert tokenizer.encode(sentence).ids == original.encode(sentence).ids


@given(text=st.text(max_size=80))
def test_any_text_comes_back(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    model = tiny_model("llama")
    path = tmp_path_factory.getbasetemp() / "any.gguf"
    tokenizer = read_tokenizer(GgufFile(path if path.exists() else model.write(path)))
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match=r"tokenizer\.ggml\.model is 'bert'"):
        rebuilt(tmp_path, model="bert", tokens=["a"])
