from dataclasses import replace

from edge_rag.core.passage import OtherWording, RerankRequest, RetrievalRequest, Retrieved
from edge_rag.core.query import Turn
from edge_rag.pipeline.cost import RetrievalCosts, rerank_cost

REQUEST = RetrievalRequest("How often is the filter changed?", "default", 100)
TURN = (Turn("What is a filter?"),)


def found(wordings: int) -> Retrieved:
    return Retrieved((), others=tuple(OtherWording(f"wording {number}") for number in range(1, wordings)))


def test_a_retrieval_costs_as_much_more_as_its_collection_has_wordings_of_a_question() -> None:
    costs = RetrievalCosts()
    before = costs.cost(REQUEST)
    for _ in range(100):
        costs.learn(REQUEST, found(3))
    wording = before - REQUEST.limit / 4
    assert abs(costs.cost(REQUEST) - (before + 2 * wording)) < 0.01
    assert costs.cost(replace(REQUEST, collection="other")) == before
    for _ in range(100):
        costs.learn(REQUEST, found(1))
    assert abs(costs.cost(REQUEST) - before) < 0.01


def test_questions_with_earlier_turns_are_counted_apart() -> None:
    costs = RetrievalCosts()
    followed = replace(REQUEST, turns=TURN)
    assert costs.cost(followed) > costs.cost(REQUEST)
    alone = costs.cost(REQUEST)
    costs.learn(followed, found(6))
    assert costs.cost(REQUEST) == alone


def test_costs_of_many_collections_stay_bounded_and_are_learned_again() -> None:
    costs = RetrievalCosts()
    alone = costs.cost(REQUEST)
    for number in range(3000):
        costs.learn(replace(REQUEST, collection=f"c{number}"), found(4))
    assert costs.cost(replace(REQUEST, collection="c0")) == alone
    assert costs.cost(replace(REQUEST, collection="c2999")) > alone


def test_a_reranking_counts_every_wording() -> None:
    one, three = (RerankRequest("a question", found(wordings), 5) for wordings in (1, 3))
    assert rerank_cost(three) > rerank_cost(one)
