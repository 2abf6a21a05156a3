"""Opens a stage on one provider and runs it once, in a subprocess because drivers may crash.

    python -m edge_rag.bootstrap.provider_trial STAGE NUMBER [--config FILE] [--data-dir DIR]

NUMBER counts the stage's providers from 0. The result is the last line on standard output, as JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from edge_rag.bootstrap.device import choose_profile
from edge_rag.bootstrap.encoders import EncoderOpener
from edge_rag.bootstrap.generators import FIRST_STEP, paged_opener, serial_opener
from edge_rag.config.settings import Settings, load_settings
from edge_rag.core.placement import ModelStage
from edge_rag.device.probe import probe
from edge_rag.device.profile import ProviderChoice
from edge_rag.errors import EdgeRagError
from edge_rag.model_store.store import fill_roles, store_of
from edge_rag.runtime.model_folder.folder import GeneratorForm, ModelRole, verify_model_folder
from edge_rag.runtime.session.sessions import configure_thread_pool, provider_devices

_TIMEOUT_S: Final = 900.0  # engines for an accelerator may have to be built


@dataclass(frozen=True, slots=True)
class ProviderTrial:
    """Result of a trial.

    Attributes:
        reason: Why not; empty where it ran.
        open_s: Duration of opening, seconds.
        run_s: Duration of the first run, seconds.
    """

    ran: bool
    reason: str = ""
    open_s: float = 0.0
    run_s: float = 0.0


def try_stage(stage: ModelStage, number: int, config: Path | None, data_dir: Path | None) -> ProviderTrial:
    """Opens a stage on one of its providers and runs it once, in a subprocess.

    Args:
        number: Number of the provider in the profile, from 0.
        config: File with settings; None for defaults and environment.
    """
    command = [sys.executable, "-P", "-m", "edge_rag.bootstrap.provider_trial", stage.value, str(number)]
    command += [] if config is None else ["--config", str(config)]
    command += [] if data_dir is None else ["--data-dir", str(data_dir)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return ProviderTrial(False, f"it was ended after {_TIMEOUT_S:.0f} s")
    if ended.returncode < 0:
        return ProviderTrial(
            False, f"the process was ended by signal {-ended.returncode}: the driver crashed or ran out of memory"
        )
    lines = ended.stdout.splitlines()
    if ended.returncode != 0 or not lines:
        problem = (ended.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return ProviderTrial(False, f"the process failed with status {ended.returncode}: {problem}")
    return ProviderTrial(**json.loads(lines[-1]))


def main() -> None:
    """Runs the trial that the arguments name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("stage", type=ModelStage)
    parser.add_argument("number", type=int)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--data-dir", type=Path)
    given = parser.parse_args()
    try:
        overrides = {} if given.data_dir is None else {"data_directory": given.data_dir}
        trial = _run_trial(load_settings(given.config, overrides), given.stage, given.number)
    except EdgeRagError as error:
        trial = ProviderTrial(False, str(error))
    sys.stdout.write(json.dumps(asdict(trial)) + "\n")


def _run_trial(settings: Settings, stage: ModelStage, number: int) -> ProviderTrial:
    facts = probe(provider_devices())
    profile = choose_profile(settings, facts).profile
    choice = profile.stages[stage].providers[number]
    configure_thread_pool(settings.threads or profile.threads(facts))
    # Not the daemon's folder: another user may run the trial, and the daemon could not read that user's files.
    with tempfile.TemporaryDirectory() as compiled:
        started = time.perf_counter()
        run = _opened(settings, stage, choice, EncoderOpener(Path(compiled), lambda _: None, facts))
        opened = time.perf_counter()
        run()
        return ProviderTrial(True, "", opened - started, time.perf_counter() - opened)


def _opened(
    settings: Settings, stage: ModelStage, choice: ProviderChoice, encoders: EncoderOpener
) -> Callable[[], object]:
    """Opens a stage; returns a function that runs it once."""
    folders = fill_roles(settings, store_of(settings))
    match stage:
        case ModelStage.EMBEDDER:
            embedder = encoders.embedder(folders.embedder)(choice)
            return lambda: embedder.embed(["one sentence"])
        case ModelStage.RERANKER if folders.reranker is not None:
            reranker = encoders.reranker(folders.reranker)(choice)
            return lambda: reranker.score([("one question", "one sentence")])
        case ModelStage.RERANKER:
            vectors = encoders.embedder(folders.embedder)(choice)
            return lambda: vectors.token_vectors(["one sentence"])
        case ModelStage.GENERATOR if folders.generator is None:
            return lambda: None
        case ModelStage.GENERATOR:
            folder = folders.generator
            form = verify_model_folder(folder, ModelRole.GENERATOR).form
            opener = serial_opener(folder, 1) if form is GeneratorForm.SERIAL else paged_opener(folder, 1)
            runner = opener(choice)
            return lambda: runner.run(FIRST_STEP)


if __name__ == "__main__":
    main()
