"""One prompt's passages with several questions about them, as tokens, laid out as the daemon lays out its prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from edge_rag.generator.prompt.template import PromptSettings
from scripts.training.quoter.text.passages import PassageWriter, Room, Said
from scripts.training.quoter.text.question import Question, QuestionWriter
from scripts.training.quoter.text.vocabulary import TURN_BEGINS, TURN_ENDS, WordEncoder
from scripts.training.quoter.text.words import Lexicon, is_content

_TRIES = 40
_LEAST_QUESTION_TOKENS = 30
_NOT_FOUND_SHARE = 0.03
_MOST_FOUND_ELSEWHERE = 0.12
_LEAST_WEIGHT = 6.0
_BRANCHES_KEPT = 24


@dataclass(frozen=True, slots=True)
class Branch:
    """A place in an answer where sentences of the passages part.

    Attributes:
        at: Which token of the answer decides.
        allowed: Tokens that sentences go on with there; the answer's own comes first.
    """

    at: int
    allowed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer.

    Attributes:
        question: Tokens, the turn of the assistant opened.
        answer: Tokens: the sentence, its marker and the end of the turn.
        branches: Where the answer could have been another sentence; none for the not-found answer.
        span: Where the answer's sentence lies in the prefix, first token and one past the last; None where not found.
    """

    question: tuple[int, ...]
    answer: tuple[int, ...]
    branches: tuple[Branch, ...]
    span: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Episode:
    """A prompt.

    Attributes:
        prefix: Tokens of system text and passages, what all its questions share.
        spans: Where each sentence lies in it.
        exchanges: Questions and answers, which do not see each other; at least one.
    """

    prefix: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    exchanges: tuple[Exchange, ...]


@dataclass(frozen=True, slots=True)
class EpisodeShape:
    """How large episodes are.

    Attributes:
        prefix_tokens: Most tokens of a prefix.
        exchange_tokens: Most tokens of all questions and answers.
        passages: How many there may be, one of these.
        sentence_tokens: The longest sentence.
        plain: Whether questions keep to the words of their sentence, for a model that has to learn to copy first.
    """

    prefix_tokens: int
    exchange_tokens: int
    passages: tuple[int, ...]
    sentence_tokens: int
    plain: bool = False


class EpisodeMaker:
    """Makes episodes; each depends on nothing but the random numbers it is made with.

    Args:
        writer: Writes the passages.
        questions: Asks about them.
        lexicon: Judges whether a question belongs to one sentence more than to all others.
        encoder: The model's vocabulary.
    """

    def __init__(
        self, writer: PassageWriter, questions: QuestionWriter, lexicon: Lexicon, encoder: WordEncoder
    ) -> None:
        self._writer = writer
        self._questions = questions
        self._lexicon = lexicon
        self._encoder = encoder
        self._texts = PromptSettings()
        self._system = encoder.text(f"{TURN_BEGINS}system\n{self._texts.system}{TURN_ENDS}\n{TURN_BEGINS}user\n")
        self._user = encoder.text(f"{TURN_BEGINS}user\n")
        self._turn = encoder.text(f"{TURN_ENDS}\n{TURN_BEGINS}assistant\n")

    def make(self, shape: EpisodeShape, random: Random) -> Episode:
        """Makes an episode."""
        while True:
            opening = self._system if random.random() < 0.8 else self._user
            room = Room(shape.prefix_tokens - len(opening), random.choice(shape.passages), shape.sentence_tokens)
            passages = self._writer.write(room, random)
            prefix, spans = self._prefix(opening, passages)
            if len(prefix) > shape.prefix_tokens:
                continue
            exchanges = self._exchanges(passages, spans, shape, random)
            if exchanges:
                return Episode(tuple(prefix), tuple(spans), tuple(exchanges))

    def _prefix(
        self, opening: list[int], passages: Sequence[Sequence[Said]]
    ) -> tuple[list[int], list[tuple[int, int]]]:
        prefix, spans = list(opening), []
        for number, passage in enumerate(passages, 1):
            prefix += self._encoder.text(f"[{number}]")
            for said in passage:
                spans.append((len(prefix), len(prefix) + len(said.tokens)))
                prefix += said.tokens
            prefix += self._encoder.text("\n\n")
        return prefix, spans

    def _exchanges(
        self, passages: Sequence[Sequence[Said]], spans: Sequence[tuple[int, int]], shape: EpisodeShape, random: Random
    ) -> list[Exchange]:
        flat = [(number, said) for number, passage in enumerate(passages, 1) for said in passage]
        stems = [self._lexicon.stems(said.words) for _, said in flat]
        quotable = [said.tokens + tuple(self._encoder.text(f" [{number}]")) for number, said in flat]
        strangers = [word.strip(".,;:!?\"'()") for _, said in flat for word in said.words if is_content(word)]
        exchanges: list[Exchange] = []
        left = shape.exchange_tokens
        for _ in range(_TRIES):
            if left < _LEAST_QUESTION_TOKENS:
                break
            if random.random() < _NOT_FOUND_SHARE:
                exchange = self._unanswerable(stems, random)
            else:
                index = random.randrange(len(flat))
                exchange = self._answerable(index, flat, stems, quotable, strangers, spans[index], shape.plain, random)
            if exchange is not None and (length := len(exchange.question) + len(exchange.answer)) <= left:
                exchanges.append(exchange)
                left -= length
        return exchanges

    def _answerable(
        self,
        index: int,
        flat: Sequence[tuple[int, Said]],
        stems: Sequence[set[str]],
        quotable: Sequence[tuple[int, ...]],
        strangers: Sequence[str],
        span: tuple[int, int],
        plain: bool,
        random: Random,
    ) -> Exchange | None:
        said = flat[index][1]
        gap = said.gap or self._questions.gap(said.words, random)
        if gap is None:
            return None
        question = self._questions.ask(said.words, gap, [word for word in strangers if word], plain, random)
        if question is None:
            return None
        asked = self._lexicon.stems(question.words) | question.meant
        own = self._lexicon.weight(question.meant)
        others = (
            self._lexicon.weight(asked & other)
            for place, other in enumerate(stems)
            if place != index and flat[place][1].words != said.rival
        )
        if own < _LEAST_WEIGHT or max(others, default=0.0) > own * (0.6 if plain else 0.85):
            return None
        answer = (*quotable[index], self._encoder.end)
        return Exchange(self._asked(question), answer, _branches(index, quotable), span)

    def _unanswerable(self, stems: Sequence[set[str]], random: Random) -> Exchange | None:
        sentence = random.choice(self._writer.any(random))
        gap = self._questions.gap(sentence, random)
        question = self._questions.ask(sentence, gap, (), False, random) if gap is not None else None
        if question is None:
            return None
        asked = self._lexicon.stems(question.words) | question.meant
        total = self._lexicon.weight(asked)
        if total < _LEAST_WEIGHT or any(self._lexicon.weight(asked & s) > _MOST_FOUND_ELSEWHERE * total for s in stems):
            return None
        answer = self._encoder.words(self._texts.not_found.split())
        return Exchange(self._asked(question), (*answer, self._encoder.end), (), None)

    def _asked(self, question: Question) -> tuple[int, ...]:
        return (*self._encoder.text("Question:"), *self._encoder.words(question.words), *self._turn)


def _branches(index: int, quotable: Sequence[tuple[int, ...]]) -> tuple[Branch, ...]:
    """Finds where the sentences that begin like this one part from it."""
    own = quotable[index]
    live = [tokens for tokens in quotable if tokens != own]
    branches = []
    for at, token in enumerate(own):
        others = sorted({tokens[at] for tokens in live if len(tokens) > at} - {token})
        if others:
            branches.append(Branch(at, (token, *others[: _BRANCHES_KEPT - 1])))
        live = [tokens for tokens in live if len(tokens) > at and tokens[at] == token]
        if not live:
            break
    return tuple(branches)
