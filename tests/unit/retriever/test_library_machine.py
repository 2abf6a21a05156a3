"""The library against a dictionary: whatever is ingested, replaced, deleted and reopened, both hold the same."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.document import IngestStatus, Upload
from edge_rag.core.documents.jobs import JobDocumentState, Ticket
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.errors import NotFound
from tests.unit.retriever.hashed_words import HashedWords

_NAMES = st.sampled_from(["a.txt", "b.txt", "c.txt"])
_PLACES = st.sampled_from(["one", "two"])
_WORDS = ("aardvark", "buffalo", "chameleon", "dromedary")


def text_of(word: str) -> str:
    return f"The {word} is mentioned in this one."


class LibraryMachine(RuleBasedStateMachine):
    """Documents by collection and name, and those that were accepted and wait, in order."""

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.directory = OpenDirectory(self.folder, HashedWords())
        self.stored: dict[tuple[str, str], str] = {}
        self.waiting: list[tuple[Ticket, tuple[str, str], str]] = []

    @rule(place=_PLACES, name=_NAMES, word=st.sampled_from(_WORDS))
    def ingest(self, place: str, name: str, word: str) -> None:
        outcome = self.directory.library.ingest(Upload.of_bytes(place, name, "text/plain", text_of(word).encode()))
        before = self.stored.get((place, name))
        expected = (
            IngestStatus.ADDED
            if before is None
            else (IngestStatus.UNCHANGED if before == word else IngestStatus.REPLACED)
        )
        assert outcome.status is expected
        self.stored[place, name] = word
        self.waiting = [each for each in self.waiting if each[1] != (place, name)]

    @rule(place=_PLACES, name=_NAMES)
    def delete(self, place: str, name: str) -> None:
        try:
            self.directory.library.delete(place, name)
        except NotFound:
            assert (place, name) not in self.stored
            return
        del self.stored[place, name]
        self.waiting = [each for each in self.waiting if each[1] != (place, name)]

    @rule(place=_PLACES, name=_NAMES, word=st.sampled_from(_WORDS))
    def accept(self, place: str, name: str, word: str) -> None:
        jobs = self.directory.jobs
        job = jobs.start("ada").job_id
        document = jobs.accept(job, Upload.of_bytes(place, name, "text/plain", text_of(word).encode()))
        jobs.finish_uploads(job)
        self.waiting.append((document.ticket, (place, name), word))

    @precondition(lambda self: bool(self.waiting))
    @rule()
    def store_what_waits(self) -> None:
        ticket, key, word = self.waiting.pop(0)
        assert ticket in {each.order for each in self.directory.jobs.waiting("ada", "")}
        outcome = self.directory.library.take(self.directory.jobs.upload(ticket), ticket)
        assert outcome is not None
        self.directory.jobs.complete(ticket, JobDocumentState.UNCHANGED)
        self.stored[key] = word

    @rule()
    def reopen(self) -> None:
        self.directory.close()
        self.directory = OpenDirectory(self.folder, HashedWords())

    @invariant()
    def both_hold_the_same(self) -> None:
        documents = self.directory.documents
        found = {
            (place, info.name): documents.get(place, info.name)[1]
            for place in documents.document_counts()
            for info in documents.list(place, None, 100)
        }
        assert found == {key: text_of(word) for key, word in self.stored.items()}
        for place in {place for place, _ in self.stored}:
            for word in _WORDS:
                (answer,) = self.directory.retriever.retrieve([RetrievalRequest(word, place, 50)])
                assert isinstance(answer, Retrieved)
                hits = [hit for hit in answer.hits if word in hit.passage.text]
                having = {hit.passage.document for hit in hits}
                having |= {same.document for hit in hits for same in hit.passage.duplicates}
                assert having == {name for (at, name), held in self.stored.items() if at == place and held == word}

    def teardown(self) -> None:
        self.directory.close()
        shutil.rmtree(self.folder)


LibraryMachine.TestCase.settings = settings(max_examples=6, stateful_step_count=16, deadline=None)
test_the_library_holds_what_a_dictionary_would = LibraryMachine.TestCase
