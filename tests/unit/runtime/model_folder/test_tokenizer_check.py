import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from edge_rag.errors import InferenceFailed
from edge_rag.runtime.encoder.tokenizer import TextTokenizer
from edge_rag.runtime.model_folder.graph_check import check_contents
from edge_rag.runtime.model_folder.tokenizer_check import LONGEST_TOKEN, MOST_GROWTH, MOST_STEPS, check_tokenizer

ROOT = Path(__file__).parents[4]
TOKENIZERS = sorted([*(ROOT / "models").glob("*/tokenizer.json"), *(ROOT / "tests/fixtures").glob("*/tokenizer.json")])


def document(*steps: normalizers.Normalizer) -> dict[str, Any]:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence(list(steps))
    made: dict[str, Any] = json.loads(tokenizer.to_str())
    return made


def charsmap(text: bytes) -> dict[str, Any]:
    content = (8).to_bytes(4, "little") + bytes(8) + b"a\0" + text + b"\0"
    return {"normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}}


@pytest.mark.parametrize("path", TOKENIZERS, ids=[path.parent.name for path in TOKENIZERS])
def test_tokenizers_in_use_are_within_the_bounds(path: Path) -> None:
    check_tokenizer(json.loads(path.read_bytes()))


@pytest.mark.parametrize(
    ("tokenizer", "problem"),
    [
        (document(*[normalizers.Replace("z", "zz")] * 22), "4,194,304 characters of one"),
        (document(normalizers.Replace("z", "z" * 65)), "65 characters of one"),
        (document(normalizers.Replace(Regex("x*"), "y" * 64)), "65 characters of one"),
        (document(normalizers.Prepend("x" * 1000)), "prepend"),
        (document(*[normalizers.Lowercase()] * MOST_STEPS), "more than"),
        (charsmap(b"x" * 1000), "1,000 bytes of a character"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "?"}}, "base64"),
        ({"model": {"vocab": {"x" * (LONGEST_TOKEN + 1): 0}}}, "token of 4,097"),
        ({"model": {"vocab": [["x" * (LONGEST_TOKEN + 1), -1.0]]}}, "token of 4,097"),
        ({"added_tokens": [{"content": "x" * (LONGEST_TOKEN + 1)}]}, "token of 4,097"),
        ({"model": {"continuing_subword_prefix": "x" * 100}}, "continuing_subword_prefix"),
        ({"decoder": {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 100}}, "100 characters of one"),
        ({"decoder": {"type": "WordPiece", "prefix": "x" * 100}}, "prefix"),
        ({"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}] * 100}}, "single"),
    ],
)
def test_a_tokenizer_that_makes_much_of_little_is_refused(tokenizer: dict[str, Any], problem: str) -> None:
    content = json.dumps(tokenizer).encode()
    with pytest.raises(ValueError, match=rf"tokenizer\.json: .*{problem}"):
        check_contents({"tokenizer.json": len(content)}, lambda path: content)


def test_a_map_of_characters_within_bounds_is_accepted() -> None:
    check_tokenizer(charsmap(b"x" * 33))


replacements = st.tuples(
    st.sampled_from(["a", "ab", "b", Regex("a*"), Regex("b|"), Regex("[ab]+")]), st.text("ab", max_size=9)
)


@given(st.lists(replacements, max_size=4), st.text("ab", min_size=1, max_size=12))
def test_no_text_grows_beyond_its_bound(pairs: list[tuple[Any, str]], text: str) -> None:
    steps = [normalizers.Replace(pattern, content) for pattern, content in pairs]
    try:
        check_tokenizer(document(*steps))
    except ValueError:
        return
    assert len(normalizers.Sequence(steps).normalize_str(text)) <= MOST_GROWTH * (len(text) + 1)


def test_an_expression_that_gives_up_fails_its_text_only() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(x+x+)+y"), "isolated")
    encoder = TextTokenizer(tokenizer, 16)
    with pytest.raises(InferenceFailed, match="cannot be tokenized"):
        encoder.count("x" * 40)
    assert encoder.count("a") == 1
