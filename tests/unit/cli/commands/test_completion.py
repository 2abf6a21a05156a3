import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str, runner: CliRunner) -> None:
    printed = runner.invoke(main, ["completion", shell], prog_name="edge-rag")
    assert (printed.exit_code, "_EDGE_RAG_COMPLETE" in printed.stdout) == (0, True), printed.output


def test_bash_completes_commands_and_options(tmp_path: Path, runner: CliRunner) -> None:
    program = tmp_path / "edge-rag"
    program.write_text(f"#!{sys.executable}\nfrom edge_rag.cli.main import main\n\nmain()\n")
    program.chmod(0o700)
    script = tmp_path / "completion"
    script.write_text(runner.invoke(main, ["completion", "bash"]).stdout)
    asked = f"""source {script}
for words in "docs op" "ingest --dry"; do
  COMPREPLY=(); COMP_WORDS=(edge-rag $words); COMP_CWORD=2; _edge_rag_completion edge-rag; echo "${{COMPREPLY[@]}}"
done"""
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", asked], env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert done.stdout.split() == ["open", "--dry-run"], done
