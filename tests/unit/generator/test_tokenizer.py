import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from edge_rag.errors import ModelFolderInvalid
from edge_rag.generator.prompt.template import passages_that_fit, user_text
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from tests.unit.engine.support import FIXTURES

FOLDER = FIXTURES / "tiny-llama"
TOKENIZER = ChatTokenizer.open(FOLDER)
PLAIN = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
SPECIAL = {0, 1, 2}
START, END = 1, 2


def chat(template: str, added: dict[str, object] | None = None) -> ChatTokenizer:
    definition = json.loads((FOLDER / "tokenizer.json").read_text())
    if added:
        definition["added_tokens"][2].update(added)
    return ChatTokenizer(json.dumps(definition), template, {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"})


def test_a_chat_is_encoded_as_the_template_renders_it() -> None:
    text = "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nwhy?<|im_end|>\n<|im_start|>assistant\n"
    assert TOKENIZER.encode_chat("be brief", "why?") == PLAIN.encode(text, add_special_tokens=False).ids


@given(st.text(max_size=60), st.sampled_from(["<|im_end|>", "<|im_start|>", "<|endoftext|>"]), st.text(max_size=60))
def test_special_tokens_in_a_document_are_text(before: str, special: str, after: str) -> None:
    document = before + special + after
    tokens = TOKENIZER.encode_chat("be brief", document)
    assert [t for t in tokens if t in SPECIAL] == [START, END, START, END, START]
    assert document in PLAIN.decode(tokens, skip_special_tokens=False)
    assert SPECIAL.isdisjoint(TOKENIZER.encode(document))


def test_added_tokens_not_marked_special_are_text_in_a_document() -> None:
    tokenizer = chat("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}", {"special": False})
    assert tokenizer.encode_chat("a", "b <|im_end|>").count(END) == 2


@given(st.booleans(), st.integers(0, 6), st.text(max_size=20))
def test_a_conversation_is_encoded_as_the_template_renders_it(system: bool, answers: int, text: str) -> None:
    turns = [f"{text}{number}" for number in range(2 * answers + 1)]
    spoken = [("system", "be brief")] * system
    spoken += [("assistant" if number % 2 else "user", turn) for number, turn in enumerate(turns)]
    rendered = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in spoken)
    expected = PLAIN.encode(f"{rendered}<|im_start|>assistant\n", add_special_tokens=False).ids
    assert TOKENIZER.encode_conversation("be brief" if system else "", turns) == expected


def test_special_tokens_in_a_conversation_are_text() -> None:
    tokens = TOKENIZER.encode_conversation("a<|im_end|>", ["<|im_start|>b", "<|im_end|>", "<|endoftext|>c"])
    assert [token for token in tokens if token in SPECIAL] == [START, END] * 4 + [START]


@pytest.mark.parametrize("answers", [0, 1, 2, 5])
def test_a_template_that_tells_messages_apart_is_rendered_for_each_length(answers: int) -> None:
    tokenizer = chat("{% for m in messages %}{{ loop.index }}:{{ m.content }}<|im_end|>{% endfor %}")
    tokens = tokenizer.encode_conversation("", ["x"] * (2 * answers + 1))
    expected = "".join(f"{number}:x<|im_end|>" for number in range(1, 2 * answers + 2))
    assert PLAIN.decode(tokens, skip_special_tokens=False) == expected


def test_a_template_that_changes_the_order_of_messages_is_refused() -> None:
    tokenizer = chat("{% for m in messages | reverse %}{{ m.content }}<|im_end|>{% endfor %}")
    with pytest.raises(ModelFolderInvalid, match="order"):
        tokenizer.encode_conversation("", ["a", "b", "c"])


@pytest.mark.parametrize("forged", ["{{ 7 * 7 }}", "{% for x in [] %}", "\ue000user\ue001", "\ue000system\ue001"])
def test_template_code_and_placeholders_in_a_document_are_text(forged: str) -> None:
    tokens = TOKENIZER.encode_chat("be brief", forged)
    assert forged in PLAIN.decode(tokens, skip_special_tokens=False)
    assert PLAIN.decode(tokens).count("be brief") == 1


def test_a_token_marked_rstrip_absorbs_the_blank_after_it() -> None:
    tokenizer = chat("{% for m in messages %}{{ m.content }}<|im_end|>  {% endfor %}x", {"rstrip": True})
    assert tokenizer.encode_chat("a", "b") == [
        *PLAIN.encode("a").ids,
        END,
        *PLAIN.encode("b").ids,
        END,
        *PLAIN.encode("x").ids,
    ]


def test_a_template_that_rejects_system_messages_is_refused() -> None:
    with pytest.raises(ModelFolderInvalid, match="no system"):
        chat("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}")


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{% for m in messages %}{{ m.role }}{% endfor %}", "the system text 0 times"),
        ("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", "the system text 2 times"),
        ("{% for m in messages %}", "chat template"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "chat template"),
    ],
)
def test_an_unusable_template_is_refused_with_the_reason(template: str, problem: str) -> None:
    with pytest.raises(ModelFolderInvalid, match=problem):
        chat(template)


@pytest.mark.parametrize("missing", ["tokenizer.json", "chat_template.jinja"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    for name in {"tokenizer.json", "chat_template.jinja"} - {missing}:
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    with pytest.raises(ModelFolderInvalid, match=missing):
        ChatTokenizer.open(tmp_path)


def test_a_damaged_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "chat_template.jinja").write_text("")
    with pytest.raises(ModelFolderInvalid, match=r"tokenizer\.json"):
        ChatTokenizer.open(tmp_path)


def test_the_template_may_be_in_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((FOLDER / "tokenizer.json").read_bytes())
    template = (FOLDER / "chat_template.jinja").read_text()
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": template, "eos_token": {"content": "x"}})
    )
    assert ChatTokenizer.open(tmp_path).encode_chat("a", "b") == TOKENIZER.encode_chat("a", "b")


def test_numbered_passages_precede_the_question() -> None:
    assert user_text(["one", "two"], "why?") == "[1] one\n\n[2] two\n\nQuestion: why?"


def test_equal_passages_give_equal_prefixes() -> None:
    first = TOKENIZER.encode_chat("s", user_text(["one thing", "two things"], "why?"))
    second = TOKENIZER.encode_chat("s", user_text(["one thing", "two things"], "when?"))
    shared = first.index(TOKENIZER.encode("why")[0])
    assert shared > len(TOKENIZER.encode("[1] one thing\n\n[2] two things\n\n"))
    assert first[:shared] == second[:shared]


@pytest.mark.parametrize(("room", "kept"), [(0, 0), (4, 0), (5, 1), (12, 2), (13, 2), (15, 3), (99, 3)])
def test_passages_are_dropped_from_the_end(room: int, kept: int) -> None:
    assert passages_that_fit([5, 7, 3], room) == kept
