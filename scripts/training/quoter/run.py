"""One training run: text in, a Hugging Face folder out, the same each time from the same seed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import tokenizers
import torch

from scripts.training.quoter.batch import Batch
from scripts.training.quoter.checkpoint import Checkpoint, Progress
from scripts.training.quoter.decoder import Decoder, ModelSize
from scripts.training.quoter.evaluation import Choices, choices
from scripts.training.quoter.export import export
from scripts.training.quoter.losses import Openings, losses, run
from scripts.training.quoter.optimizer import Optimizer
from scripts.training.quoter.schedule import STAGES, Step, steps
from scripts.training.quoter.text.corpus import Corpus
from scripts.training.quoter.text.teacher import Teacher

MODEL_FOLDER = "model"
LOG_FILE = "log.jsonl"
_REPORT_STEPS = 20
_EVALUATED_SHAPE = STAGES[-1].shapes[-1]
_EVALUATED_EPISODES = 4


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What decides a run's result, besides the text.

    Attributes:
        seed: All randomness comes from it.
        tokens: To train on, filling included.
        step_tokens: In one step, about.
        size: The model's shape.
        matrix_rate: Muon's learning rate.
        other_rate: AdamW's.
        device: ``cpu`` or ``cuda``.
        threads: For a CPU's products; the order of sums depends on it.
        compiled: Whether layers are compiled.
        questions: Held-out questions to judge by, about.
    """

    seed: int
    tokens: int
    step_tokens: int
    size: ModelSize
    matrix_rate: float
    other_rate: float
    device: str
    threads: int
    compiled: bool
    questions: int


@dataclass(frozen=True, slots=True)
class Report:
    """How a run is doing; means since the report before.

    Attributes:
        step: Steps done.
        tokens: Tokens done.
        tokens_per_second: Wall time.
        loss: All losses, weighted.
        answer: Of the answers' tokens, nats.
        choice: Of the choices among sentences, nats.
        chosen: Share of choices that are right.
        looked: Attention on the right sentence.
        rate: Share of the full learning rate.
    """

    step: int
    tokens: int
    tokens_per_second: float
    loss: float
    answer: float
    choice: float
    chosen: float
    looked: float
    rate: float


class Run:
    """A run in a folder.

    Args:
        settings: What is trained.
        corpus: The text.
        tokenizer: Trained on it, of the size's vocabulary.
        folder: Takes the state, a log and the model.
        command: How the run was started, for the provenance.
    """

    def __init__(
        self, settings: RunSettings, corpus: Corpus, tokenizer: tokenizers.Tokenizer, folder: Path, command: str
    ) -> None:
        if settings.device == "cpu":
            torch.set_num_threads(settings.threads)
        torch.use_deterministic_algorithms(True, warn_only=settings.device != "cpu")
        # Every buffer used here is written before it is read.
        torch.utils.deterministic.fill_uninitialized_memory = False
        torch.manual_seed(settings.seed)
        self.settings = settings
        self._corpus = corpus
        self._tokenizer = tokenizer
        self._folder = folder
        self._command = command
        self._device = torch.device(settings.device)
        self.model = Decoder(settings.size).to(self._device)
        self._openings = Openings(settings.size.hidden).to(self._device)
        if settings.compiled:
            for layer in self.model.layers:
                layer.compile(dynamic=False)
        self._optimizer = Optimizer(self.model, self._openings, settings.matrix_rate, settings.other_rate)
        self._teacher = Teacher(corpus, tokenizer, settings.seed)
        self._checkpoint = Checkpoint(
            folder, self._identity(), settings.tokens, self.model, self._openings, self._optimizer
        )
        self.progress = Progress()

    def resume(self) -> None:
        """Goes on where the folder's state was saved.

        Raises:
            DifferentRun: Other settings or other text made it.
        """
        self.progress = self._checkpoint.restore(self._device)

    def train(self, report: Callable[[Report], None], save_every_s: float, interrupted: Callable[[], bool]) -> bool:
        """Trains to the end or until it is interrupted, saving then and now and then.

        Args:
            report: Told every few steps.
            save_every_s: Seconds between saves.
            interrupted: Asked after each step whether to stop.

        Returns:
            Whether the run is finished.
        """
        begun = saved = since = time.monotonic()
        before = self.progress
        sums = torch.zeros(5, dtype=torch.float64)
        counted = tokens = 0
        for step in islice(self._steps(), before.steps, None):
            sums += self._step(step)
            counted, tokens = counted + 1, tokens + step.tokens
            now = time.monotonic()
            self.progress = Progress(step.number + 1, step.begun + step.tokens, before.seconds + now - begun)
            if self.progress.steps % _REPORT_STEPS == 0:
                loss, answer, choice, chosen, looked = (sums / counted).tolist()
                speed = tokens / (now - since)
                reached = (self.progress.steps, self.progress.tokens, speed)
                self._tell(Report(*reached, loss, answer, choice, chosen, looked, step.rate), report)
                sums.zero_()
                counted, tokens, since = 0, 0, now
            if interrupted():
                self._checkpoint.save(self.progress)
                return False
            if now - saved > save_every_s:
                self._checkpoint.save(self.progress)
                saved = now
        self._checkpoint.save(self.progress)
        return True

    def evaluate(self) -> Choices:
        """Measures on text held out."""
        measured: Choices = choices(self.model, self._held_out(), self._device)
        return measured

    def export(self, measured: Choices | None) -> Path:
        """Writes the model as it is; returns its folder."""
        provenance = self._identity() | {
            "command": self._command,
            "steps": self.progress.steps,
            "tokens": self.settings.tokens,
            "tokens_done": self.progress.tokens,
            "minutes": round(self.progress.seconds / 60, 1),
            "parameters": sum(weights.numel() for weights in self.model.parameters()),
            "torch": torch.__version__,
            "held_out": None if measured is None else asdict(measured),
            "sources": self._corpus.sources,
        }
        export(self.model, self._tokenizer, self._folder / MODEL_FOLDER, provenance)
        return self._folder / MODEL_FOLDER

    def _step(self, step: Step) -> torch.Tensor:
        batch = self._teacher.batch(step)
        outputs = run(self.model, batch, step.shape.prefix_tokens, self._device)
        lost = losses(self.model, self._openings, outputs, batch, self._device)
        lost.total.backward()
        self._optimizer.step(step.rate)
        shown = (lost.total, lost.answer, lost.choice, lost.chosen, lost.looked)
        return torch.stack([value.detach() for value in shown]).double().cpu()

    def _steps(self) -> Iterator[Step]:
        return steps(self.settings.tokens, self.settings.step_tokens, self.settings.seed)

    def _held_out(self) -> Iterator[tuple[Batch, int]]:
        asked = number = 0
        while asked < self.settings.questions:
            batch = self._teacher.held_out(number, _EVALUATED_SHAPE, _EVALUATED_EPISODES)
            yield batch, _EVALUATED_SHAPE.prefix_tokens
            asked += len(set(batch.exchange_of.tolist()))
            number += 1

    def _tell(self, told: Report, report: Callable[[Report], None]) -> None:
        with (self._folder / LOG_FILE).open("a", encoding="utf-8") as log:
            log.write(json.dumps(asdict(told)) + "\n")
        report(told)

    def _identity(self) -> dict[str, Any]:
        vocabulary = hashlib.sha256(self._tokenizer.to_str().encode()).hexdigest()
        settings = asdict(self.settings)
        # How long a run is to be may be decided while it runs, see ``schedule``; how it is judged changes nothing.
        del settings["tokens"], settings["questions"]
        return settings | {"corpus_sha256": self._corpus.sha256, "vocabulary_sha256": vocabulary}
