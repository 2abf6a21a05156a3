"""Lists the files of the package in which one question runs: from the interceptor to the engine, and after it.

    python -m scripts.question_walk [--other CHECKOUT] [--step]

A daemon with the sample documents answers a question to be warm, then another one, while a profiler notes the first
call into each file. Threads of the engine and of monitors are left out: they run whether a question comes or not.

With --step, the small language model of the tests writes the answer, and the files are those of the engine and of the
runtime in which its steps run: those that ``Engine._step`` calls into.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType

_ROOT = Path(__file__).resolve().parents[1]
_INTERCEPTOR, _ENGINE = "server/grpc/interceptor.py", "engine/command_queue.py"


def serve(package: str, arguments: list[str], of_step: bool) -> None:
    """Runs the daemon of a package folder with a profiler: SIGUSR1 starts it, SIGUSR2 prints what it saw."""
    first: dict[str, int] = {}
    active = in_step = False

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal in_step
        if not active:
            return
        name, thread = frame.f_code.co_filename, threading.current_thread().name
        if frame.f_code.co_qualname == "Engine._step" and event in ("call", "return"):
            in_step = event == "call"
        wanted = in_step and thread == "engine" if of_step else thread.startswith(("MainThread", "stage-"))
        if wanted and event == "call" and name.startswith(package) and name not in first:
            first[name] = time.monotonic_ns()

    def start(*_: object) -> None:
        nonlocal active
        active = True

    def write(*_: object) -> None:
        nonlocal active
        active = False
        seen = json.dumps({name[len(package) :]: at for name, at in first.items()})
        os.write(sys.stdout.fileno(), f"{seen}\n".encode())

    signal.signal(signal.SIGUSR1, start)
    signal.signal(signal.SIGUSR2, write)
    threading.setprofile(note)
    sys.setprofile(note)
    from edge_rag.cli.main import main as edge_rag

    sys.argv = ["edge-rag", "serve", *arguments]
    edge_rag()


def walk(tree: Path, of_step: bool = False) -> dict[str, int]:
    """Returns the files in which a question runs, or a step of its answer, by the time of the first call."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        python = str(tree / ".venv" / "bin" / "python")
        package = str(tree / "edge_rag") + os.sep
        program = f"import sys; sys.path.append({str(_ROOT)!r}); from scripts.question_walk import serve; "
        program += f"serve({package!r}, {['--data-dir', str(data), '--listen', f'unix:{folder}/socket']!r}, {of_step})"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EDGE_RAG_")}
        command = [python, "-c", program]
        if of_step:
            added = ["models", "add", str(_ROOT / "tests/fixtures/quoter"), "--name", "traced", "--data-dir", str(data)]
            subprocess.run([python, "-m", "edge_rag", *added], env=environment, check=True, stdout=subprocess.DEVNULL)
            environment["EDGE_RAG_MODELS__GENERATOR"] = "traced"
        daemon = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tree, env=environment)
        try:
            assert daemon.stdout is not None
            if not any(b"serving on" in line for line in daemon.stdout):
                sys.exit("the daemon did not start")

            def run(*arguments: str) -> None:
                call = [python, "-m", "edge_rag", arguments[0], "--server", f"unix:{folder}/socket", *arguments[1:]]
                subprocess.run(call, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)

            run("ingest", str(tree / "deploy" / "samples"), "--quiet")
            mode = ("--mode", "free", "--max-tokens", "40") if of_step else ()
            run("ask", "How often must the pump bearings be greased?", *mode)
            daemon.send_signal(signal.SIGUSR1)
            run("ask", "To how many amperes is the main breaker set?", *mode)
            daemon.send_signal(signal.SIGUSR2)
            first: dict[str, int] = json.loads(daemon.stdout.readline())
        finally:
            daemon.terminate()
            daemon.wait()
    return first


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, help="a checkout in which scripts/test ran once, instead of this one")
    parser.add_argument("--step", action="store_true", help="list the files of the engine's steps instead")
    options = parser.parse_args()
    tree = (options.other or _ROOT).resolve()
    first = walk(tree, options.step)
    if options.step:
        parts = {"step": sorted(name for name in first if name.startswith(("engine/", "runtime/")))}
    else:
        first = {name: at for name, at in first.items() if at >= first[_INTERCEPTOR]}
        before = sorted(name for name, at in first.items() if at <= first[_ENGINE])
        parts = {"to_the_engine": before, "after": sorted(first.keys() - set(before))}
    for title, names in parts.items():
        lines = sum(len((tree / "edge_rag" / name).read_text().splitlines()) for name in names)
        print(f"{title}: {len(names)} files, {lines} lines", *(f"  {name}" for name in names), sep="\n")


if __name__ == "__main__":
    main()
