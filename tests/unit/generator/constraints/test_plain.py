from edge_rag.core.answer import FinishReason
from edge_rag.engine.constraint import Ended
from edge_rag.generator.constraints.plain import FreeText, NoGeneration


def test_free_text_ends_with_an_end_token() -> None:
    state = FreeText(frozenset({2, 3}))
    assert state.after((7,)) == state
    assert state.after((7, 3)).next() == Ended(FinishReason.STOP)


def test_no_generation_ends_at_once() -> None:
    assert NoGeneration(FinishReason.NOT_FOUND).next() == Ended(FinishReason.NOT_FOUND)
