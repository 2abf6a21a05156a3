"""A server that this project did not write as a remote: `transformers serve`, asked by a board, killed in the middle.

    python -m venv .serving && .serving/bin/pip install 'transformers[serving]' accelerate torch
    python -m scripts.bench.offload.openai_remote --python .serving/bin/python [--questions 20]

The server gets a small model of a published kind with random weights and the tokenizer of the tests' generator, so that
nothing is fetched; what it says is noise, which is what the board has to cope with. A daemon with the samples is given
it as its only remote and asked in all modes; quotations stay on the board. Then the server is killed while questions
are answered. Every answer must be whole.
"""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from edge_rag.client import AskOptions, Client
from edge_rag.core.answer import Finished
from edge_rag.core.documents.collection import CollectionSettings
from edge_rag.core.monitoring.event import AuditEntry, AuditEventKind
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import AnswerMode
from scripts.bench.harness.daemon import SMALL_GENERATOR, add_generator, running

ROOT: Final = Path(__file__).parents[3]
SAMPLES: Final = ROOT / "deploy" / "samples"
QUESTION: Final = "How often must the pump bearings be greased?"
SERVING: Final = "Uvicorn running on"
_READY_S: Final = 180.0


def make_checkpoint(folder: Path) -> None:
    """Makes a Qwen2 of two layers with random weights and the tokenizer of the tests' generator."""
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(SMALL_GENERATOR / "tokenizer.json"))
    tokenizer.chat_template = (SMALL_GENERATOR / "chat_template.jinja").read_text()
    tokenizer.eos_token = "<|im_end|>"
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def server(python: str, checkpoint: Path, log: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Runs `transformers serve`; gives its process and base URL once it says that it serves."""
    port = free_port()
    start = "from transformers.cli.transformers import main; main()"
    command = [python, "-c", start, "serve", "--host", "127.0.0.1", "--port", str(port), str(checkpoint)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    serving = threading.Event()

    def follow() -> None:
        assert process.stderr is not None
        with log.open("w") as output:
            for line in process.stderr:
                output.write(line)
                output.flush()
                if SERVING in line:
                    serving.set()
        serving.set()  # it has ended

    following = threading.Thread(target=follow)
    following.start()
    try:
        if not serving.wait(_READY_S) or process.poll() is not None:
            raise SystemExit(f"the server did not start:\n{log.read_text()[-2000:]}")
        yield process, f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait(30)
        following.join()


@contextmanager
def board(folder: Path, url: str, model: Path) -> Iterator[str]:
    """Runs a daemon that prefers the server; gives its address."""
    config = add_generator(SMALL_GENERATOR, folder / "board") + (
        f'[offload]\nmode = "prefer-remote"\nfirst_token_timeout_seconds = 30\n'
        f'[[offload.remotes]]\nname = "hf"\nkind = "openai"\naddress = "{url}"\nmodel = "{model}"\n'
    )
    with running(folder / "board", config) as daemon:
        yield daemon.address


def ask(client: Client, mode: AnswerMode, number: int, outcomes: Counter[str]) -> None:
    """Asks and counts how the answer came about; raises where it is not whole."""
    request_id = f"{mode.value}-{number}"
    events = list(client.ask(QUESTION, AskOptions(mode=mode, request_id=request_id, max_tokens=40)))
    assert isinstance(events[-1], Finished)
    entries = client.audit_events(request_id=request_id)
    kinds = {entry.event.kind for entry in entries if isinstance(entry, AuditEntry)}
    where = "here"
    if AuditEventKind.SENT in kinds:
        where = "taken over" if AuditEventKind.TAKEN_OVER in kinds else "elsewhere"
    outcomes[f"{mode.value}: written {where}, {events[-1].reason.value}"] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="Python that has transformers[serving]")
    parser.add_argument("--questions", type=int, default=20, help="questions a mode")
    wanted = parser.parse_args()
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_checkpoint(folder / "checkpoint")
        with (
            server(wanted.python, folder / "checkpoint", folder / "server.log") as (process, url),
            board(folder, url, folder / "checkpoint") as address,
            Client(address, timeout_s=120) as client,
        ):
            for path in sorted(SAMPLES.glob("*.md")):
                client.ingest(path.name, lambda path=path: path.open("rb"))  # type: ignore[misc]
            client.update_collection("default", CollectionSettings(offload=OffloadRule.ALLOWED), {"offload"})
            for mode in AnswerMode:
                for number in range(wanted.questions):
                    ask(client, mode, number, outcomes)
            (remote,) = client.status().remotes
            print(f"{remote.name} at {remote.address}: {remote.answers} answers, {remote.failures} failures")
            if remote.last_problem:
                print(f"latest problem: {remote.last_problem}")
            killing = threading.Timer(1.0, process.send_signal, (signal.SIGKILL,))
            killing.start()
            after: Counter[str] = Counter()
            for number in range(wanted.questions, 2 * wanted.questions):
                ask(client, AnswerMode.FREE, number, after)
            killing.join()
    for what, counts in (("with the server", outcomes), ("while it is killed", after)):
        print(what)
        for outcome, count in sorted(counts.items()):
            print(f"  {count:4d}  {outcome}")


if __name__ == "__main__":
    main()
