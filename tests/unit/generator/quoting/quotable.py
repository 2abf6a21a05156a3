"""Passages of a parsed document as the store gives them to the quoting code, with the text around them."""

from edge_rag.core.documents.document import ParsedDocument
from edge_rag.core.documents.parts import ChunkPlace
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage, RankedPassage, Sentence, Surroundings
from edge_rag.core.text import sentence_spans
from edge_rag.ingest.chunking import ChunkLimits, chunk_document

EVIDENCE = 9.0
"""Evidence of the sentence that answers best; that of the others is 0."""


def count_words(text: str) -> int:
    return len(text.split())


def passages_of(document: ParsedDocument, *answers: str, words: int = 12, name: str = "manual") -> list[RankedPassage]:
    """Returns the chunks of a document, each with the whole text around it.

    Args:
        document: The document.
        answers: Begins of the sentences with the most evidence, best first; each has a little less than the one before.
        words: Most words of a chunk, so that lists cross the ends of chunks.
        name: Name of the document.
    """
    chunks = chunk_document(document, ChunkLimits(words, 40), count_words)
    places = tuple(ChunkPlace(each.start, each.end, each.context, each.page) for each in chunks)
    around = Surroundings(0, document.text, places)
    ranked = []
    for chunk in chunks:
        passage = Passage(
            ChunkId(chunk.ordinal + 1),
            DocumentId(name),
            name,
            chunk.page,
            chunk.start,
            chunk.end,
            chunk.text,
            chunk.context,
            surroundings=around,
        )
        sentences = [
            Sentence(start, end, _evidence(chunk.text[start:end], answers)) for start, end in sentence_spans(chunk.text)
        ]
        ranked.append(RankedPassage(passage, 1.0, tuple(sentences)))
    return ranked


def _evidence(sentence: str, answers: tuple[str, ...]) -> float:
    found = [place for place, answer in enumerate(answers) if sentence.startswith(answer)]
    return EVIDENCE - 0.1 * found[0] if found else 0.0
