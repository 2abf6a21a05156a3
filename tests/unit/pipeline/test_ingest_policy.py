"""The order of ingest: equal shares of owners and collections, small before large, nobody starved."""

from collections import defaultdict
from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.documents.jobs import JobId, QueuedDocument
from edge_rag.pipeline.ingest_policy import (
    LARGE_BYTES,
    MAX_OVERTAKEN,
    DocumentInWork,
    IngestLimits,
    IngestShares,
    choose_document,
    is_large,
)

_OWNERS = st.sampled_from(["ada", "bob", "eve"])
_SIZES = st.sampled_from([10, 200_000, LARGE_BYTES, LARGE_BYTES + 1, 60 << 20])
_LIMITS = st.builds(IngestLimits, st.integers(1, 5), st.integers(1, 3), st.integers(1, 2), st.integers(1, 3))
_DOCUMENTS = st.lists(
    st.tuples(_OWNERS, st.sampled_from(["one", "two"]), st.sampled_from("abcdef"), _SIZES), min_size=1, max_size=40
)


def queued(*documents: tuple[str, str, str, int]) -> list[QueuedDocument]:
    jobs = JobId("job"), None
    return [QueuedDocument(order, jobs[order % 3 == 2], *each) for order, each in enumerate(documents)]


class Queue:
    """What waits and what is in work, with the shares that result."""

    def __init__(self, documents: Sequence[QueuedDocument], limits: IngestLimits) -> None:
        self.documents = list(documents)
        self.limits = limits
        self.in_work: list[DocumentInWork] = []
        self.by_owner: IngestShares[str] = IngestShares()
        self.by_collection: IngestShares[tuple[str, str]] = IngestShares()
        self.seconds: dict[str, float] = defaultdict(float)

    def waiting(self, owner: str) -> list[QueuedDocument]:
        oldest: dict[tuple[str, str], QueuedDocument] = {}
        for document in self.documents:
            oldest.setdefault((document.collection, document.name), document)
        return [document for document in oldest.values() if document.owner == owner]

    def begin(self) -> QueuedDocument | None:
        owners = {document.owner for document in self.documents}
        chosen = choose_document(owners, self.waiting, self.in_work, self.by_owner, self.by_collection, self.limits)
        if chosen is not None:
            self.documents.remove(chosen)
            self.in_work.append(DocumentInWork(chosen, parsing=True))
            self.by_owner.begin(chosen.owner)
            self.by_collection.begin((chosen.owner, chosen.collection))
        return chosen

    def end(self, document: QueuedDocument, seconds: float) -> None:
        self.in_work = [each for each in self.in_work if each.document is not document]
        self.seconds[document.owner] += seconds
        self.by_owner.charge(document.owner, seconds)
        self.by_collection.charge((document.owner, document.collection), seconds)

    def drain(self, seconds: float = 1.0) -> list[QueuedDocument]:
        order: list[QueuedDocument] = []
        while (chosen := self.begin()) is not None:
            self.end(chosen, seconds)
            order.append(chosen)
        return order


def test_collections_of_one_owner_take_turns_by_the_seconds_they_take() -> None:
    queue = Queue(queued(*[("ada", "one", f"{n}", 10) for n in range(9)], ("ada", "two", "x", 10)), IngestLimits())

    order = queue.drain()

    assert [each.collection for each in order[:3]] == ["one", "two", "one"]


def test_an_owner_whose_documents_take_longer_stores_fewer() -> None:
    documents = [(owner, "one", f"{owner}{number}", 10) for number in range(30) for owner in ("ada", "eve")]
    queue = Queue(queued(*documents), IngestLimits())
    for _ in range(24):
        chosen = queue.begin()
        assert chosen is not None
        queue.end(chosen, 5.0 if chosen.owner == "eve" else 1.0)

    assert abs(queue.seconds["ada"] - queue.seconds["eve"]) <= 5.0


def test_small_documents_go_first_and_a_large_one_is_overtaken_by_a_bounded_number() -> None:
    small = [("ada", "one", f"{number}", 10) for number in range(2 * MAX_OVERTAKEN)]
    order = Queue(queued(("ada", "one", "large", 1 << 30), *small), IngestLimits()).drain()

    assert MAX_OVERTAKEN - 1 <= [each.name for each in order].index("large") <= MAX_OVERTAKEN


def test_time_forgives_what_an_owner_had() -> None:
    shares: IngestShares[str] = IngestShares()
    shares.begin("eve")
    shares.charge("eve", 100.0)
    shares.begin("ada")
    assert shares.debt("eve") == 100.0

    shares.pass_time(300.0)
    assert shares.debt("eve") == 50.0
    shares.pass_time(1e6)
    assert shares.debt("eve") == 0.0


def test_an_owner_that_comes_back_has_no_claim_to_the_time_it_was_away() -> None:
    shares: IngestShares[str] = IngestShares()
    for _ in range(50):
        shares.begin("eve")
        shares.charge("eve", 10.0)
    shares.begin("ada")
    shares.charge("ada", 15.0)

    assert shares.debt("ada") > 0
    assert abs(shares.debt("ada") - shares.debt("eve")) <= 15.0


@given(_DOCUMENTS, _LIMITS, st.lists(st.floats(0, 30), min_size=1, max_size=9))
def test_everything_is_stored_once_and_names_keep_their_order(
    documents: list[tuple[str, str, str, int]], limits: IngestLimits, seconds: list[float]
) -> None:
    queue = Queue(queued(*documents), limits)
    order: list[QueuedDocument] = []
    while (chosen := queue.begin()) is not None:
        queue.end(chosen, seconds[len(order) % len(seconds)])
        order.append(chosen)

    assert sorted(each.order for each in order) == list(range(len(documents)))
    of_name: dict[tuple[str, str], list[int]] = defaultdict(list)
    for each in order:
        of_name[each.collection, each.name].append(each.order)
    assert all(orders == sorted(orders) for orders in of_name.values())


@given(_DOCUMENTS, _LIMITS, st.randoms(use_true_random=False))
def test_no_owner_takes_every_place_and_no_name_is_in_work_twice(
    documents: list[tuple[str, str, str, int]], limits: IngestLimits, random: Random
) -> None:
    queue = Queue(queued(*documents), limits)
    while queue.documents or queue.in_work:
        chosen = queue.begin() if random.random() < 0.5 else None
        if chosen is None and queue.in_work:
            place = random.randrange(len(queue.in_work))
            document = queue.in_work[place].document
            if queue.in_work[place].parsing and random.random() < 0.5:
                queue.in_work[place] = DocumentInWork(document, parsing=False)
            else:
                queue.end(document, 1.0)
        names = [(each.document.collection, each.document.name) for each in queue.in_work]
        assert len(names) == len(set(names))
        assert len(queue.in_work) <= limits.in_work
        assert sum(each.parsing for each in queue.in_work) <= limits.parsers
        assert sum(is_large(each.document) for each in queue.in_work) <= limits.large
        for owner in ("ada", "bob", "eve"):
            own = [each for each in queue.in_work if each.document.owner == owner]
            for direct in (True, False):
                assert sum((each.document.job_id is None) is direct for each in own) <= limits.of_owner
            assert sum(is_large(each.document) for each in own) <= 1
            if len(own) > 1:
                assert len(own) < limits.in_work
            if sum(each.parsing for each in own) > 1:
                assert sum(each.parsing for each in own) < limits.parsers


@given(st.integers(1, 12), st.integers(0, 300))
def test_a_newcomer_waits_for_one_document_of_each_other_owner_at_most(others: int, backlog: int) -> None:
    documents = [(f"owner-{number}", "one", f"{number}-{n}", 10) for number in range(others) for n in range(backlog)]
    queue = Queue(queued(*documents), IngestLimits())
    for _ in range(3 * others):
        chosen = queue.begin()
        if chosen is not None:
            queue.end(chosen, 1.0)
    queue.documents.append(QueuedDocument(10**6, None, "new", "one", "page", 10))

    order = queue.drain()

    assert [each.owner for each in order].index("new") <= others
