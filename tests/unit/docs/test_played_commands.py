"""Every command that the documentation shows is played by ``scripts/play_docs``, or its table says why it is not."""

from dataclasses import replace

import pytest

from scripts.play_docs.blocks import Command, commands
from scripts.play_docs.player import ROOT, WrongPage, check_table
from scripts.play_docs.table import Page, Play, read

TABLE = read()
PAGES = ["README.md", "docs/quickstart.md", *sorted(f"docs/guide/{path.name}" for path in ROOT.glob("docs/guide/*.md"))]


def shown(page: str) -> list[Command]:
    return commands((ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [page for page in PAGES if shown(page)])
def test_somebody_has_said_what_each_command_of_a_page_has_to_do(page: str) -> None:
    assert page in TABLE, "scripts/play_docs/table.toml lacks it"
    check_table(TABLE[page], shown(page))


def test_the_table_has_no_page_without_commands() -> None:
    assert {page for page in TABLE if not shown(page)} == set()


def test_a_command_that_nobody_has_decided_about_is_an_error() -> None:
    page = Page("guide.md", (Play("edge-rag status"),))
    check_table(page, [Command(1, "edge-rag status", False)])
    for wrong in (
        [Command(1, "edge-rag status", False), Command(2, "edge-rag usage", False)],
        [Command(1, "edge-rag usage", False)],
        [],
    ):
        with pytest.raises(WrongPage, match=r"guide\.md and scripts/play_docs/table\.toml differ"):
            check_table(page, wrong)
    with pytest.raises(WrongPage):
        check_table(replace(page, plays=()), [Command(1, "edge-rag status", False)])


def test_commands_are_read_as_they_are_written() -> None:
    page = """Text.

```sh
edge-rag serve                 # a comment
curl 'http://box/?a=1#part' \\
    -H 'x: y'
```

It prints this:

```text
one line
another
```

On the other machine:

```sh
edge-rag status
```

Alone:

```sh
edge-rag connect HOST:PORT     # on the other machine
edge-rag usage
```
"""
    assert commands(page) == [
        Command(4, "edge-rag serve", False),
        Command(5, "curl 'http://box/?a=1#part' -H 'x: y'", False, ("one line", "another")),
        Command(19, "edge-rag status", True),
        Command(25, "edge-rag connect HOST:PORT", True),
        Command(26, "edge-rag usage", False),
    ]
