"""Chat templates that never end or make gigabytes, added with the command line's code and every process it starts."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main
from edge_rag.errors import ModelFolderInvalid
from edge_rag.generator.prompt.chat_template import LARGEST_TEMPLATE, render_chat_template
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.runtime.model_folder.folder import read_manifest
from tests.support.model_folders import describe_model
from tests.synthetic.tiny_model import FIXTURES

ROOT = Path(__file__).parents[3]
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
CONTENTS = "{{ messages[0].content }}{{ messages[1].content }}"


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture
def no_process_is_left() -> Callable[[], None]:
    """Checks that the process has no children besides those of before, such as a daemon of other tests."""
    before = children()

    def check() -> None:
        assert children() <= before

    return check


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        (LOOP, "more than 2 s of processor time"),
        (
            "{% set n = namespace(x='x') %}{% for a in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
            "more than 128 MiB",
        ),
        ("{{ 'x' * 4000000000 }}", "more than 128 MiB"),
        ("{{ '%4000000000d' % 1 }}", "more than 128 MiB"),
        ("{{ 'x' * 70000 }}", "more than 65,536 bytes"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
        ("{{ " + "(" * 3000 + ")" * 3000 + " }}", "recursion"),
        ("{{ 1 // 0 }}", "zero"),
        ("{{ range(10 ** 9) }}", "range"),
        ("{% import 'os' as x %}", ""),
        ("x" * (LARGEST_TEMPLATE + 1), "at most"),
    ],
)
def test_a_hostile_template_is_refused_with_the_reason(
    template: str, problem: str, no_process_is_left: Callable[[], None]
) -> None:
    with pytest.raises(ModelFolderInvalid, match=f"chat template: .*{problem}"):
        render_chat_template(template, {})
    no_process_is_left()


def add(folder: Path, data: Path, runner: CliRunner) -> str:
    done = runner.invoke(main, ["models", "add", str(folder), "--name", "tiny", "--data-dir", str(data)])
    assert done.exit_code != 0
    return done.output


@pytest.mark.parametrize("finished", [False, True], ids=["onnxruntime-genai folder", "finished folder"])
def test_models_add_refuses_a_hostile_template_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: bool, no_process_is_left: Callable[[], None]
) -> None:
    monkeypatch.setenv("EDGE_RAG_LISTEN", f"unix:{tmp_path}/none")
    source = tmp_path / "source"
    ignored = () if finished else ("manifest.json", "paged*")
    shutil.copytree(FIXTURES / "tiny-llama", source, ignore=shutil.ignore_patterns(*ignored))
    (source / "chat_template.jinja").write_text(LOOP + CONTENTS)
    if finished:
        kept = read_manifest(source)
        describe_model(source, kept.role, kept.name, **kept.parameters)
    shown = " ".join(add(source, tmp_path / "data", CliRunner()).split())
    assert "chat template: rendering it takes more than 2 s of processor time" in shown
    no_process_is_left()
    assert not (tmp_path / "data" / "models" / "tiny").exists()


def test_no_word_of_a_question_reaches_a_template() -> None:
    """A template sees placeholders only, so that a loop that waits for a word never starts."""
    definition = (FIXTURES / "tiny-llama" / "tokenizer.json").read_text()
    trap = "{% if 'grease' in messages[1].content %}" + LOOP + "{% endif %}" + CONTENTS
    chat = ChatTokenizer(definition, trap, {})
    assert chat.encode_chat("be brief", "why grease?") == chat.encode("be briefwhy grease?")


def test_a_step_of_models_add_ends_with_a_command_that_is_killed(tmp_path: Path) -> None:
    """The step starts a process of its own, which ends with it."""
    step = tmp_path / "endless_step.py"
    step.write_text(
        "import subprocess, sys, time\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(10_000)'])\n"
        "print(inner.pid, flush=True)\n"
        "time.sleep(10_000)\n"
    )
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from edge_rag.model_store.convert.staging import run_python\n"
        "from edge_rag.model_store.source import NoProgress\n"
        "class Shown(NoProgress):\n"
        "    def detail(self, line): print(line, flush=True)\n"
        "code = f'import runpy; runpy.run_path({sys.argv[1]!r})'\n"
        "run_python('timeit', ['-n', '1', '-r', '1', code], Path(sys.argv[2]), Shown(), timeout_s=900, threads=1)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(step), str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        inner = int(command.stdout.readline())
        started = psutil.Process(command.pid).children(recursive=True)
        command.send_signal(signal.SIGKILL)
    assert inner in {each.pid for each in started}
    _, alive = psutil.wait_procs(started, timeout=60)
    assert alive == []
