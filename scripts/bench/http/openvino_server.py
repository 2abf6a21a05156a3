"""OpenVINO GenAI's continuous batching pipeline behind chat completions. Runs in an environment of its own.

    python -m scripts.bench.http.openvino_server FILE.gguf

Prints its address, then serves ``POST /v1/chat/completions`` as a stream, greedy, until it is ended. The standard
library serves; one thread steps the pipeline. It stands in for OpenVINO Model Server, of which there is no package that
pip installs, and does less for a request.
"""

from __future__ import annotations

import argparse
import importlib
import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

_STEP_TOKENS = 512
_CACHE_BLOCKS = 2048
"""Blocks of 32 tokens: 64 sequences of 1,024."""


class Pipeline:
    """A pipeline that a thread steps while there are requests."""

    def __init__(self, model: Path, threads: int, slots: int) -> None:
        genai = importlib.import_module("openvino_genai")
        scheduler = genai.SchedulerConfig()
        scheduler.num_kv_blocks = _CACHE_BLOCKS
        scheduler.max_num_batched_tokens = _STEP_TOKENS
        scheduler.max_num_seqs = slots
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = True
        properties = {"INFERENCE_NUM_THREADS": threads, "KV_CACHE_PRECISION": "u8"}
        self._pipeline: Any = genai.ContinuousBatchingPipeline(str(model), scheduler, "CPU", properties)
        self._tokenizer: Any = self._pipeline.get_tokenizer()
        self._make_generation = genai.GenerationConfig
        self._make_history = genai.ChatHistory
        self._numbers = count()
        self._submitted: queue.SimpleQueue[tuple[Any, int, queue.SimpleQueue[str | None]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def answer(self, messages: list[dict[str, str]], max_tokens: int) -> queue.SimpleQueue[str | None]:
        """Submits a conversation; the queue gets pieces of the answer, then None."""
        pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._submitted.put((messages, max_tokens, pieces))
        return pieces

    def _run(self) -> None:
        running: dict[int, tuple[Any, list[int], queue.SimpleQueue[str | None]]] = {}
        while True:
            while not running or not self._submitted.empty():
                messages, max_tokens, pieces = self._submitted.get()
                text = self._tokenizer.apply_chat_template(self._make_history(messages), add_generation_prompt=True)
                tokens = self._tokenizer.encode(text, add_special_tokens=False).input_ids
                generation = self._make_generation()
                generation.max_new_tokens = max_tokens
                generation.do_sample = False
                generation.apply_chat_template = False
                generation.eos_token_id = self._tokenizer.get_eos_token_id()
                generation.stop_token_ids = {generation.eos_token_id}
                number = next(self._numbers)
                running[number] = (self._pipeline.add_request(number, tokens, generation), [], pieces)
            self._pipeline.step()
            for number, (handle, said, pieces) in list(running.items()):
                if handle.can_read():
                    before = self._tokenizer.decode(said) if said else ""
                    said += [token for output in handle.read().values() for token in output.generated_ids]
                    if piece := self._tokenizer.decode(said)[len(before) :]:
                        pieces.put(piece)
                if handle.get_status() != type(handle.get_status()).RUNNING:
                    pieces.put(None)
                    del running[number]


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    pipeline: Pipeline

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        pieces = self.pipeline.answer(body["messages"], body["max_tokens"])
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        while (piece := pieces.get()) is not None:
            self._send("data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": piece}}]}) + "\n\n")
        self._send("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Logs nothing."""


def main() -> None:
    """Runs the server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=32, help="requests that run at once")
    arguments = parser.parse_args()
    _Handler.pipeline = Pipeline(arguments.model, arguments.threads, arguments.slots)
    server = _Server(("127.0.0.1", 0), _Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
