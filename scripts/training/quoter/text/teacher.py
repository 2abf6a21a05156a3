"""Everything a run's batches are made with."""

from __future__ import annotations

from random import Random

import tokenizers

from scripts.training.quoter.batch import Batch, make_batch
from scripts.training.quoter.schedule import Step
from scripts.training.quoter.text.corpus import Corpus
from scripts.training.quoter.text.episode import EpisodeMaker, EpisodeShape
from scripts.training.quoter.text.noise import Noise
from scripts.training.quoter.text.passages import PassageWriter
from scripts.training.quoter.text.question import QuestionWriter
from scripts.training.quoter.text.vocabulary import WordEncoder
from scripts.training.quoter.text.words import Lexicon


class Teacher:
    """Makes the batches of a run, each from the seed and its number alone, so that any can be made again.

    Args:
        corpus: The text.
        tokenizer: The model's vocabulary.
        seed: Of the run.
    """

    def __init__(self, corpus: Corpus, tokenizer: tokenizers.Tokenizer, seed: int) -> None:
        self._seed = seed
        self._encoder = WordEncoder(tokenizer)
        pieces = self._encoder.pieces()
        self.makers: dict[bool, EpisodeMaker] = {}
        for held_out, paragraphs in ((False, corpus.learned), (True, corpus.held_out)):
            lexicon = Lexicon(paragraphs)
            questions = QuestionWriter(lexicon, corpus.wordnet)
            writer = PassageWriter(paragraphs, lexicon, questions, Noise(lexicon.vocabulary, pieces), self._encoder)
            self.makers[held_out] = EpisodeMaker(writer, questions, lexicon, self._encoder)

    def batch(self, step: Step) -> Batch:
        """Makes a step's batch of the text to learn from."""
        return self._make(False, f"{self._seed} step {step.number}", step.shape, step.episodes, step.stretched)

    def held_out(self, number: int, shape: EpisodeShape, episodes: int) -> Batch:
        """Makes a batch of the text held out; ``number`` tells batches apart."""
        return self._make(True, f"{self._seed} held out {number}", shape, episodes, 0.0)

    def _make(self, held_out: bool, seed: str, shape: EpisodeShape, episodes: int, stretched: float) -> Batch:
        # A string seeds by its SHA-512, whatever the interpreter's hash seed.
        random = Random(seed)
        maker = self.makers[held_out]
        return make_batch([maker.make(shape, random) for _ in range(episodes)], shape, stretched, random)
