"""Workloads: requests with random prompts, and questions over passages that are drawn by a Zipf law.

Needs NumPy and the standard library only, because programs in other environments import it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_LOWEST_TOKEN = 300
"""Past the tokens with a meaning of their own."""


@dataclass(frozen=True, slots=True)
class PassageLoad:
    """What is asked, in tokens.

    Attributes:
        passages: Passages there are.
        passage_tokens: Length of each.
        per_prompt: Passages of a prompt.
        exponent: The passage that is asked for n-th most often is so with a weight of ``n ** -exponent``.
        system_tokens: Length of what every prompt begins with.
        question_tokens: Length of a question.
        answer_tokens: Length of every answer.
        vocabulary: Token ids are below this.
    """

    passages: int = 500
    passage_tokens: int = 256
    per_prompt: int = 4
    exponent: float = 1.0
    system_tokens: int = 40
    question_tokens: int = 24
    answer_tokens: int = 64
    vocabulary: int = 100_000

    @property
    def prompt_tokens(self) -> int:
        """Length of a prompt."""
        return self.system_tokens + self.per_prompt * self.passage_tokens + self.question_tokens


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        passages: Its passages, best first: in the order in which they were drawn.
        tokens: int64 [question_tokens].
    """

    passages: tuple[int, ...]
    tokens: NDArray[np.int64]


class Corpus:
    """Texts, and questions about them.

    Args:
        load: Their sizes.
        seed: Of everything drawn; equal arguments give equal texts and questions.
        shift_every: Questions after which other passages become the ones that are asked for; 0 for never.
    """

    def __init__(self, load: PassageLoad, seed: int, shift_every: int = 0) -> None:
        self._load = load
        self._random = np.random.default_rng(seed)
        self._shift_every = shift_every
        draw = self._random.integers
        self.system = draw(_LOWEST_TOKEN, load.vocabulary, load.system_tokens)
        self.texts = draw(_LOWEST_TOKEN, load.vocabulary, (load.passages, load.passage_tokens))
        weights = np.arange(1, load.passages + 1, dtype=np.float64) ** -load.exponent
        self._weights = weights / weights.sum()

    def questions(self, count: int) -> Iterator[Question]:
        """Yields questions; how often a passage is asked for has nothing to do with its number."""
        load, random = self._load, self._random
        ranked = random.permutation(load.passages)
        for number in range(1, count + 1):
            drawn = ranked[random.choice(load.passages, load.per_prompt, replace=False, p=self._weights)]
            yield Question(
                tuple(int(passage) for passage in drawn),
                random.integers(_LOWEST_TOKEN, load.vocabulary, load.question_tokens),
            )
            if self._shift_every and number % self._shift_every == 0:
                ranked = random.permutation(load.passages)

    def prompt(self, question: Question, passages: tuple[int, ...]) -> NDArray[np.int64]:
        """Lays a prompt out: system text, passages in the order given, question."""
        return np.concatenate([self.system, *(self.texts[passage] for passage in passages), question.tokens])


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests with the time between them.

    Attributes:
        prompts: int64 [requests, tokens].
        cover: int64 [n, tokens]; prompts that have every passage once, or none.
        gaps: float64 [requests], exponentially distributed with mean 1: times between arrivals at one a second.
        system_tokens: Tokens before the first passage.
        passage_tokens: Length of a passage.
        question_tokens: Tokens after the last one.
        answer_tokens: Length of every answer.
    """

    prompts: NDArray[np.int64]
    cover: NDArray[np.int64]
    gaps: NDArray[np.float64]
    system_tokens: int
    passage_tokens: int
    question_tokens: int
    answer_tokens: int

    @property
    def room(self) -> int:
        """Tokens that a prompt and its answer come to."""
        return int(self.prompts.shape[1]) + self.answer_tokens

    def write(self, path: Path) -> None:
        """Writes it to a file."""
        np.savez(path, **asdict(self))

    @classmethod
    def read(cls, path: Path) -> Trace:
        """Reads what ``write`` wrote."""
        with np.load(path) as held:
            sizes = {name: int(held[name]) for name in held.files if name.endswith("_tokens")}
            return cls(held["prompts"], held["cover"], held["gaps"], **sizes)


@dataclass(frozen=True, slots=True)
class Job:
    """One request of a trace.

    Attributes:
        prompt: Token ids.
        output_tokens: Exactly how many tokens are generated.
    """

    prompt: tuple[int, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Run:
    """A trace that was run; all requests arrived at time 0.

    Attributes:
        seconds: From the first arrival to the last token.
        first_token_s: float64 [requests], time to first token.
        completion_s: float64 [requests], time to the last token.
        occupancy: Busy slots by usable slots, averaged over the steps at which requests were waiting; 1 if none were.
        output_tokens: Tokens generated.
        outputs: Generated tokens of each request.
    """

    seconds: float
    first_token_s: NDArray[np.float64]
    completion_s: NDArray[np.float64]
    occupancy: float
    output_tokens: int
    outputs: tuple[tuple[int, ...], ...]

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens by elapsed time."""
        return self.output_tokens / self.seconds


def length_sampler(variance: str, mean: int, longest: int, rng: np.random.Generator) -> int:
    """Draws an output length.

    ``high`` is the published shape: exponential with the given mean, capped. ``medium`` is uniform over half to one and
    a half times the mean; ``low`` is the mean itself.
    """
    if variance == "high":
        length = rng.exponential(mean)
    elif variance == "medium":
        length = rng.uniform(0.5 * mean, 1.5 * mean)
    else:
        length = mean
    return int(np.clip(round(length), 1, longest))


def make_trace(
    requests: int, prompt_tokens: int, variance: str, mean: int, longest: int, vocabulary: int, seed: int
) -> tuple[Job, ...]:
    """Makes a trace of requests with random prompts; equal arguments give equal traces."""
    rng = np.random.default_rng(seed)
    return tuple(
        Job(
            tuple(int(token) for token in rng.integers(3, vocabulary, prompt_tokens)),
            length_sampler(variance, mean, longest, rng),
        )
        for _ in range(requests)
    )
