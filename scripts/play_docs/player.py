"""Two machines on a network, and the commands of pages played on them as a reader would type them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scripts.play_docs.blocks import Command
from scripts.play_docs.table import Page, Play
from tests.support.network_namespaces import Machine

ROOT: Final = Path(__file__).parents[2]
COMMAND_S: Final = 300
"""Most that a command may take, seconds; building the operators takes longest."""

_OUTPUT_S: Final = 60
"""Most until a command that goes on prints what it is waited for, seconds."""

_CTRL_C: Final = 130
_READY: Final = r"^edge-rag \S+ serving on"
_MOUNTED: Final = ("srv", "media")
_MANUALS: Final = (
    "rm -rf manuals && cp -r deploy/samples manuals && mkdir manuals/pumps "
    "&& mv manuals/operating-manual.pdf manuals/pumps"
)
"""The folder of documents that the pages call by this name."""


class WrongPage(Exception):
    """A command does not do what its page says; the message says which, where and how."""


@dataclass(slots=True)
class Host:
    """A machine with the home of its user."""

    machine: Machine
    checkout: Path
    folder: Path
    programs: tuple[Path, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    running: list[Running] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def reset(self, home: Path | None = None) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for each in ("home", *_MOUNTED):
            (self.folder / each).mkdir(parents=True)
        if home is not None:
            shutil.copytree(home, self.home, dirs_exist_ok=True)

    def start(self, command: str, types: str = "") -> Running:
        """Starts a command in the checkout."""
        mounts = "".join(f"mount --bind {shlex.quote(str(self.folder / each))} /{each} && " for each in _MOUNTED)
        kept = {"PATH", "LANG", "TERM", "PIP_INDEX_URL", "SSL_CERT_FILE"}
        environment = {name: value for name, value in os.environ.items() if name in kept}
        search = os.pathsep.join([*map(str, self.programs), environment.get("PATH", os.defpath)])
        environment |= {"HOME": str(self.home), "PATH": search, **self.environment}
        into = ("ip", "netns", "exec", self.machine.name, "unshare", "--mount", "bash", "-c")
        process = subprocess.Popen(
            [*into, f'{mounts}exec bash -o pipefail -c "$1"', "bash", command],
            cwd=self.checkout, env=environment, text=True, errors="replace", start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return Running(process, types)

    def run(self, command: str) -> str:
        """Runs what a reader is said to have done before; returns what it prints."""
        running = self.start(command)
        code = running.end()
        if code:
            raise WrongPage(f"`{command}` ended with exit code {code}:\n{running.output}")
        return running.output

    def stop(self) -> None:
        while self.running:
            self.running.pop().interrupt(signal.SIGTERM)


class Running:
    """A command that runs."""

    def __init__(self, process: subprocess.Popen[str], types: str) -> None:
        self._process = process
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._ended = False
        assert process.stdin is not None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            process.stdin.write(types)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it did not want to read

    @property
    def output(self) -> str:
        with self._changed:
            return "".join(self._lines)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(self, pattern: str) -> bool:
        """Waits until its output matches; returns whether it did before the command ended."""
        found = re.compile(pattern, re.MULTILINE)
        with self._changed:
            self._changed.wait_for(lambda: self._ended or found.search("".join(self._lines)), _OUTPUT_S)
            return bool(found.search("".join(self._lines)))

    def end(self) -> int:
        """Waits for its end, and ends it if that does not come; returns its exit code."""
        try:
            code = self._process.wait(COMMAND_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            code = self._process.wait()
        # What it leaves in the background may hold its output open.
        self._reader.join(1)
        return code

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> int:
        """Presses Ctrl-C; returns its exit code."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)
        return self.end()


class Player:
    """Plays pages on two machines."""

    def __init__(self, box: Host, other: Host, tell: Callable[[str], None], *, keep_going: bool = False) -> None:
        self._box = box
        self._other = other
        self._tell = tell
        self._keep_going = keep_going
        self.problems = 0
        self._kept: dict[str, str] = {}
        self._seed: Path | None = None

    def _bring_in(self) -> None:
        """Lets the box's user bring the sample documents in, and keeps the home for pages that begin with them."""
        self._box.reset()
        try:
            self._box.run("test -x .edge-rag/venv/bin/edge-rag || { scripts/quickstart && scripts/quickstart --stop; }")
            self._serve()
            for collection in ("default", "manuals"):
                self._box.run(f"{_MANUALS} && edge-rag ingest --quiet --collection {collection} manuals/")
        finally:
            self._box.stop()
        self._seed = self._box.folder.with_name("seed")
        shutil.copytree(self._box.home, self._seed, ignore=shutil.ignore_patterns("*.sock"))

    def play(self, page: Page, commands: list[Command]) -> None:
        """Plays the commands of a page in their order."""
        check_table(page, commands)
        if page.documents and self._seed is None:
            self._bring_in()
        self._kept = {}
        there = set(self._box.checkout.iterdir())
        self._box.reset(self._seed if page.documents else None)
        self._other.reset()
        try:
            self._box.run(f"{_MANUALS} && cp -r manuals /srv/manuals {page.before and '&& ' + page.before}")
            if page.daemon:
                self._serve()
            for command, play in zip(commands, page.plays, strict=True):
                where = f"{page.path}:{command.line}"
                if play.not_here:
                    self._tell(f"{where}  not here: {play.not_here}  {command.text}")
                    continue
                try:
                    self._play(command, play)
                except WrongPage as wrong:
                    message = f"{where}: `{command.text}`: {wrong}"
                    if not self._keep_going:
                        raise WrongPage(message) from None
                    self.problems += 1
                    self._tell(message)
                    continue
                self._tell(f"{where}  on the {'other machine' if command.elsewhere else 'box'}  {command.text}")
        finally:
            for host in (self._box, self._other):
                host.stop()
            for path in set(self._box.checkout.iterdir()) - there:
                if path.name != ".edge-rag":
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _serve(self, command: str = "edge-rag serve") -> None:
        daemon = self._box.start(command)
        self._box.running.append(daemon)
        if not daemon.wait_for(_READY):
            raise WrongPage(f"the daemon did not start:\n{daemon.output}")

    def _play(self, command: Command, play: Play) -> None:
        host = self._other if command.elsewhere else self._box
        if play.stops:
            self._box.stop()
        if play.before:
            self._keep(play, self._box.run(play.before))
        if play.starts:
            self._serve(play.starts)
        running = host.start(self._filled(command.text), play.types)
        if play.until:
            if not running.wait_for(play.until):
                raise WrongPage(f"it does not print {play.until!r} but:\n{running.output}")
            if play.stays:
                host.running.append(running)
        code = 0 if play.stays else running.interrupt() if play.until else running.end()
        output = running.output
        expected = _CTRL_C if play.until and not play.stays else play.code
        if code != expected:
            raise WrongPage(f"its exit code is {code}, not {expected}:\n{output}")
        for pattern, wanted in ((play.says, True), (play.lacks, False)):
            if pattern and bool(re.search(pattern, output, re.MULTILINE)) != wanted:
                raise WrongPage(f"its output {'does not match' if wanted else 'matches'} {pattern!r}:\n{output}")
        self._compare(command.output, output)
        self._keep(play, output)
        if play.then:
            self._keep(play, host.run(self._filled(play.then)))

    @staticmethod
    def _compare(shown: tuple[str, ...], output: str) -> None:
        rest = iter(output.splitlines())
        for line in shown:
            if not any(printed.rstrip() == line for printed in rest):
                raise WrongPage(f"the page shows the line {line!r}, but the output is:\n{output}")

    def _keep(self, play: Play, output: str) -> None:
        for word, pattern in play.keeps.items():
            if found := re.search(pattern, output, re.MULTILINE):
                self._kept[word] = found[1]

    def _filled(self, command: str) -> str:
        """Puts what was kept in the place of the words in capitals that it is kept for."""
        for word, kept in self._kept.items():
            command = re.sub(rf"(?<![\w-]){word}(?![\w-])", lambda _, kept=kept: kept, command)  # type: ignore[misc]
        return command


def check_table(page: Page, commands: list[Command]) -> None:
    """Compares a page with its entries in the table."""
    shown, known = [command.text for command in commands], [play.run for play in page.plays]
    if shown != known:
        first = next((pair for pair in zip(shown, known, strict=False) if pair[0] != pair[1]), None)
        texts = first or ((shown + known)[min(len(shown), len(known))], "nothing")
        raise WrongPage(
            f"{page.path} and scripts/play_docs/table.toml differ at `{texts[0]}` and `{texts[1]}`: say in the table "
            "what each command has to do, or why it cannot be played"
        )
