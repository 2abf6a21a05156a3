"""What README.md and two guides tell a reader to type does what they say, on two machines of a network.

``python -m scripts.play_docs`` plays all pages, with an installation of its own.
"""

from collections.abc import Iterator

import pytest

from scripts.play_docs.__main__ import players
from scripts.play_docs.blocks import commands
from scripts.play_docs.player import ROOT, Player
from scripts.play_docs.table import read
from tests.support.network_namespaces import NoNamespaces


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    made = players(installed=True)
    try:
        player = made.__enter__()
    except NoNamespaces as reason:
        pytest.skip(f"network namespaces cannot be made here: {reason}")
    try:
        yield player
    finally:
        made.__exit__(None, None, None)


@pytest.mark.parametrize("page", ["README.md", "docs/guide/network-and-pairing.md", "docs/guide/chat.md"])
def test_every_command_of_a_page_does_what_the_page_says(player: Player, page: str) -> None:
    player.play(read()[page], commands((ROOT / page).read_text(encoding="utf-8")))
