from pathlib import Path

import pytest

from edge_rag.client import credentials
from edge_rag.config.settings import load_settings
from edge_rag.config.unknown_keys import OTHER_VARIABLES
from edge_rag.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "threads = 2\n\n[generator]  # comment\nmax_slotz = 3",
            "line 4: generator.max_slotz: no such setting; did you mean generator.max_slots?",
        ),
        ("max_slots = 3", "line 1: max_slots: no such setting; did you mean generator.max_slots?"),
        ("generator.max_slotz = 3", "line 1: generator.max_slotz: no such setting; did you mean generator.max_slots?"),
        ("[generatr]\nmax_slots = 1", "line 1: generatr: no such setting; did you mean generator?"),
        ("[nonsense]", "line 1: nonsense: no such setting"),
        (
            '[offload]\n[[offload.remotes]]\nname = "a"\naddress = "127.0.0.1:1"\n[[offload.remotes]]\nname = "b"\n'
            'adress = "127.0.0.1:2"',
            "line 7: offload.remotes.1.adress: no such setting; did you mean offload.remotes.1.address?",
        ),
        ("[generator]\nmax_slots = 0", "line 2: generator.max_slots: Input should be greater than"),
    ],
)
def test_a_key_of_a_file_is_named_with_its_line_and_what_it_may_mean(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "edge-rag.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        load_settings(file)
    assert f"{file}, {message}" in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("EDGE_RAG_LISTNE", "EDGE_RAG_LISTNE: no such setting; did you mean EDGE_RAG_LISTEN?"),
        ("EDGE_RAG_GENERATOR_MAX_SLOTS", "did you mean EDGE_RAG_GENERATOR__MAX_SLOTS?"),
        ("EDGE_RAG_GENERATOR__MAX_SLOTZ", "did you mean EDGE_RAG_GENERATOR__MAX_SLOTS?"),
        ("edge_rag_sever", "edge_rag_sever: no such setting; did you mean EDGE_RAG_SERVER?"),
        ("EDGE_RAG_THREADS", "EDGE_RAG_THREADS: threads: Input should be a valid integer"),
    ],
)
def test_a_variable_is_named_with_what_it_may_mean(
    monkeypatch: pytest.MonkeyPatch, variable: str, message: str
) -> None:
    monkeypatch.setenv(variable, "x")
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert message in str(refused.value)


def test_variables_of_clients_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {value for name, value in vars(credentials).items() if name.endswith("_VARIABLE")}
    assert variables <= OTHER_VARIABLES
    for variable in OTHER_VARIABLES:
        monkeypatch.setenv(variable, "x")
    load_settings()
