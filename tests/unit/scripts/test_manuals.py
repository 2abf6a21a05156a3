"""Judging answers over manuals: what a program tells of one, and verdicts that hold for one wording only."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from scripts.bench.quality.manuals.archive import Manual, NoManuals, Package, put_manuals
from scripts.bench.quality.manuals.judging import (
    SETS,
    Question,
    Verdict,
    add_verdicts,
    as_json,
    as_markdown,
    folder_of,
    hash_of,
    judge,
    look_at,
    read_questions,
    read_verdicts,
)

STEPS = Question(
    "how-to-01",
    "how-to",
    "en",
    "pump.html",
    "How is it primed?",
    ("pump", "priming"),
    (("close",), ("open", "turn")),
    True,
)


@pytest.mark.parametrize("name", SETS)
def test_verdicts_are_of_known_questions_and_say_what_is_wrong(name: str) -> None:
    verdicts = read_verdicts(folder_of(name))
    assert set(verdicts) == {each.id for each in read_questions(folder_of(name))}
    assert all(each.right == (not each.why) for answers in verdicts.values() for each in answers.values())


def test_steps_must_all_be_there_in_their_order() -> None:
    assert look_at(STEPS, "Pump: Close the\n drain, then turn the valve.").holds
    assert look_at(STEPS, "Pump: Close the drain.").missing == ("open",)
    assert not look_at(STEPS, "Pump: Turn the valve, then close the drain.").in_order
    assert look_at(STEPS, "Pump: do not open it before. Close the drain, turn the valve.").in_order


def test_typographic_quotes_and_line_breaks_are_no_difference() -> None:
    assert hash_of("the “pump’s”\nvalve") == hash_of('the "pump\'s" valve ')


def test_a_changed_answer_has_to_be_read_again(tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.json"
    report = json.loads(as_json(judge([STEPS], ["Pump: close, open."], {})))
    assert report["answers"][0]["right"] is None
    report["answers"][0] |= {"right": False, "why": "no valve is named"}
    sheet.write_text(json.dumps(report))
    assert add_verdicts(sheet, tmp_path) == 1
    same, other = (
        judge([STEPS], [answer], read_verdicts(tmp_path))[0] for answer in ("Pump: close, open.", "Pump: close.")
    )
    assert same.verdict == Verdict(False, "no valve is named")
    assert other.verdict is None
    assert "wrong: no valve is named" in as_markdown([same])
    assert "not read" in as_markdown([other])


def test_manuals_with_another_content_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    installed = tmp_path / "pump.html"
    installed.write_text("<p>Pump")
    package = Package("pump-doc", "1.0", (Manual(installed, "pump.html", hashlib.sha256(b"<p>Valve").hexdigest()),))
    with pytest.raises(NoManuals, match="pump-doc is not installed, and there is no apt-get"):
        put_manuals((package,), tmp_path / "manuals")
