"""Quotes in context: lists whole, rows with their header, and each quote understandable alone."""

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from docx import Document
from fpdf import FPDF
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.answer import Citation, FinishReason, TextDelta, Usage
from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.core.generation import GenerationEvent
from edge_rag.core.limits.request_fields import MAX_SENTENCES
from edge_rag.core.passage import RankedPassage, Sentence
from edge_rag.engine.ports import Outcome
from edge_rag.generator.quoting.answer import CUT, Quote, grouped, laid_out, points_of
from edge_rag.generator.quoting.blocks import MAX_BLOCK_CHARACTERS, refers_back
from edge_rag.generator.streams import QuoteStream
from edge_rag.ingest.parsing.document_builder import DocumentBuilder
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.parser import read_document
from edge_rag.ingest.parsing.text.html import parse_html
from edge_rag.ingest.parsing.text.markdown import parse_markdown
from tests.unit.generator.quoting.quotable import passages_of

STEPS = (
    "Close the suction valve of the pump.",
    "Switch the pump off at the panel and lock the switch.",
    "Drain the casing through the lower plug.",
    "Loosen the four bolts of the cover.",
    "Take the old seal out and clean its seat.",
    "Press the new seal in by hand.",
)
INTRODUCTION = "Replace the seal as follows:"


def markdown_steps() -> ParsedDocument:
    items = "\n".join(f"{number}. {step}" for number, step in enumerate(STEPS, 1))
    return parse_markdown(f"# Seals\n\nA seal lasts long. {INTRODUCTION}\n\n{items}\n\nThen log it.\n".encode())


def html_steps() -> ParsedDocument:
    items = "".join(f"<li><p>{step}</p></li>" for step in STEPS)
    page = f"<h1>Seals</h1><p>A seal lasts long. {INTRODUCTION}</p><ol>{items}</ol><p>Then log it.</p>"
    return parse_html(page.encode())


def docx_steps() -> ParsedDocument:
    document = Document()
    document.add_heading("Seals", 1)
    document.add_paragraph(f"A seal lasts long. {INTRODUCTION}")
    for step in STEPS:
        document.add_paragraph(step, style="List Number")
    document.add_paragraph("Then log it.")
    target = io.BytesIO()
    document.save(target)
    return read_document("seals.docx", "", target.getvalue(), ParsingLimits())[1]


def pdf_steps() -> ParsedDocument:
    page = FPDF()
    page.add_page()
    page.set_font("Helvetica", size=18)
    page.cell(text="Seals", new_x="LMARGIN", new_y="NEXT")
    page.set_font("Helvetica", size=10)
    page.ln(6)
    page.multi_cell(0, text=f"A seal lasts long. {INTRODUCTION}", new_x="LMARGIN", new_y="NEXT")
    page.ln(4)
    for number, step in enumerate(STEPS, 1):
        page.multi_cell(0, text=f"{number}. {step}", new_x="LMARGIN", new_y="NEXT")
    page.ln(6)
    page.multi_cell(0, text="Then log it.", new_x="LMARGIN", new_y="NEXT")
    return read_document("seals.pdf", "", bytes(page.output()), ParsingLimits())[1]


FORMATS = {"markdown": markdown_steps, "html": html_steps, "docx": docx_steps, "pdf": pdf_steps}


def answer(
    question: str,
    passages: Sequence[RankedPassage],
    *,
    points: int | None = None,
    weights: dict[str, float] | None = None,
) -> tuple[str, list[Quote]]:
    """The text of an answer, and its quotes in order."""
    found = points_of(question, passages, points, 4.0, weights)
    pieces = list(laid_out(grouped(found, passages)))
    text = "".join(piece if isinstance(piece, str) else piece.text for piece in pieces)
    return text, [piece for piece in pieces if isinstance(piece, Quote)]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("best", [INTRODUCTION, STEPS[0], STEPS[3], STEPS[5]])
def test_the_steps_of_a_procedure_come_whole_and_in_order(kind: str, best: str) -> None:
    document = FORMATS[kind]()
    passages = passages_of(document, best)
    assert len([each for each in passages if set(each.passage.text.split("\n")) & set(STEPS)]) > 1, "it is in chunks"
    text, (quote,) = answer("How do I replace the seal of a pump?", passages)
    assert text.split("\n") == [INTRODUCTION, *(["", *STEPS])]
    assert text == quote.text == document.text[quote.start : quote.end]


def test_steps_that_are_sentences_come_with_their_paragraph_and_the_programs_after_it() -> None:
    page = (
        b"<h2>Time</h2><p>The box is a client. Tell it to serve, then restart it.</p><pre>allow 192.0.2.0/24</pre>"
        b"<pre>[Server]\n\nport=123</pre><h2>Logs</h2><pre>log yes</pre>"
    )
    text, _ = answer("How do I make a server of it?", passages_of(parse_html(page), "Tell it to serve"))
    assert text == (
        "The box is a client. Tell it to serve, then restart it.\n\nallow 192.0.2.0/24\n\n[Server]\n\nport=123"
    )
    text, _ = answer("What does a server do?", passages_of(parse_html(page), "The box is"))
    assert text == "The box is a client."


def test_the_title_of_what_follows_is_no_step() -> None:
    page = b"<p>Press the button once.</p><p>Flashing Lights</p><p>They tell of faults.</p>"
    assert answer("How do I reset it?", passages_of(parse_html(page), "Press"))[0] == "Press the button once."


def test_a_sentence_between_a_program_and_a_list_brings_the_list() -> None:
    page = (
        b"<p>Set it up:</p><pre># setup all\n# setup none</pre><p>This has two parts.</p>"
        b"<ul><li>Pick.</li><li>Save.</li></ul>"
    )
    text, _ = answer("How do I set it up?", passages_of(parse_html(page), "This has two parts"))
    assert text.endswith("This has two parts.\n\nPick.\nSave.")


def test_points_of_a_procedure_are_of_one_section() -> None:
    document = parse_markdown(b"# Pumps\n\nGrease the pump.\n\n# Valves\n\nGrease the valve.\n")
    assert answer("How do I grease it?", passages_of(document, "Grease the pump", "Grease the valve"))[0] == (
        "Grease the pump."
    )
    assert "valve" in answer("What is greased?", passages_of(document, "Grease the pump", "Grease the valve"))[0]


SETTING = "The interval is set here. Mains make it 1 second. It costs time. The default is 60 seconds. It was new."


@pytest.mark.parametrize(
    ("question", "asked", "end"),
    [
        ("How long is the interval?", ("interval",), "Mains make it 1 second."),
        ("How long is the default interval?", ("interval", "default"), "The default is 60 seconds."),
        ("Who sets the interval?", ("interval",), "The interval is set here."),
    ],
)
def test_a_number_that_is_asked_for_stands_in_the_quote_if_its_paragraph_has_it(
    question: str, asked: tuple[str, ...], end: str
) -> None:
    builder = DocumentBuilder()
    builder.add(BlockKind.PARAGRAPH, SETTING)
    weights = dict.fromkeys(asked, 1.0)
    text, _ = answer(question, passages_of(builder.build(), "The interval", words=60), weights=weights)
    assert text == SETTING[: SETTING.index(end) + len(end)]


def test_the_number_of_another_entry_is_not_the_value_of_this_one() -> None:
    page = b"<dl><dt>TEMP</dt><dd>How hot the water is.</dd><dt>PORT</dt><dd>It listens at 514.</dd></dl>"
    text, _ = answer("How hot is it at most?", passages_of(parse_html(page), "How hot the"), weights={"hot": 1.0})
    assert text == "TEMP\nHow hot the water is."


def test_a_quote_begins_with_its_sentence_where_lines_were_broken_for_their_width() -> None:
    block = "Open a command prompt and type this line, with the address of the\nmachine in it:\n\narp -s ADDRESS"
    text, _ = answer("How do I set the address?", passages_of(parse_html(f"<pre>{block}</pre>".encode()), "machine in"))
    assert text == block


def test_a_value_of_a_list_comes_without_the_list() -> None:
    text, _ = answer("How many bolts has the cover?", passages_of(markdown_steps(), STEPS[3]))
    assert text == STEPS[3]


def test_an_announced_list_comes_whole_if_several_things_are_asked_for() -> None:
    page = b"<p>The kit holds:</p><ul><li>a seal</li><li>four bolts</li><li>a tube of grease</li></ul>"
    text, _ = answer("Which parts are in the kit?", passages_of(parse_html(page), "four bolts"))
    assert text == "The kit holds:\n\na seal\nfour bolts\na tube of grease"


def test_the_records_of_a_log_are_no_steps() -> None:
    lines = "\n".join(f"- 2025-0{month}-11 10:20 the alarm was reset by {who}" for month, who in enumerate("ABCD", 1))
    text, _ = answer("How do I reset the alarm?", passages_of(parse_markdown(lines.encode()), "2025-03"))
    assert text == "2025-03-11 10:20 the alarm was reset by C"


def test_steps_with_programs_between_them_come_together() -> None:
    page = (
        b"<h2>Upgrade</h2><p>It is quick.</p><ol><li><p>Read the lists anew:</p><pre>apt update</pre></li>"
        b"<li><p>Then fetch the packages with</p><pre>apt upgrade</pre></li></ol><p>That is all.</p>"
    )
    expected = "Read the lists anew:\n\napt update\n\nThen fetch the packages with\n\napt upgrade"
    for best in ("Read the lists", "apt update", "Then fetch"):
        text, _ = answer("How do I upgrade it?", passages_of(parse_html(page), best))
        assert text.startswith(expected), best


def test_a_list_that_is_too_long_is_cut_between_lines_with_a_mark() -> None:
    steps = "\n".join(f"{number}. Tighten bolt number {number} of the cover by hand." for number in range(1, 90))
    document = parse_markdown(f"Close it so:\n\n{steps}\n".encode())
    text, (quote,) = answer("How do I close the cover?", passages_of(document, "Close it so:"))
    assert text == f"{quote.text}\n{CUT}"
    assert MAX_BLOCK_CHARACTERS - 60 < len(quote.text) <= MAX_BLOCK_CHARACTERS
    assert quote.text.endswith("by hand.")
    text, (quote,) = answer("How do I close the cover?", passages_of(document, "Tighten bolt number 80 "))
    assert text == f"{CUT}\n{quote.text}\n{CUT}"
    assert quote.text == "Tighten bolt number 80 of the cover by hand."


def test_a_row_of_a_table_comes_with_the_row_that_names_its_columns_and_the_caption() -> None:
    rows = "\n".join(f"| {name} | {speed} | {flow} |" for name, speed, flow in (("P1", 980, 31), ("P2", 1450, 44)))
    document = parse_markdown(f"Speed of the pumps:\n\n| Pump | Speed | Flow |\n|---|---|---|\n{rows}\n".encode())
    text, quotes = answer("What is the speed of pump P2?", passages_of(document, "P2 |"))
    assert text == "Speed of the pumps:\nPump | Speed | Flow\nP2 | 1450 | 44"
    assert [quote.context for quote in quotes] == [True, True, False]


def test_the_row_that_the_question_names_comes_in_place_of_the_first_row() -> None:
    page = parse_html(b"<table><tr><td>Bit<td>Meaning<tr><td>6<td>Battery low<tr><td>7<td>Replace it</table>")
    text, _ = answer("What does bit 7 mean?", passages_of(page, "Bit"), weights={"bit": 1.0, "7": 1.0})
    assert text.endswith("7 | Replace it")


def test_a_row_whose_cells_have_labels_comes_alone() -> None:
    document = read_document("parts.csv", "", b"Part,Number\nSeal,P-101\nBolt,P-102\n", ParsingLimits())[1]
    assert answer("What is the number of the seal?", passages_of(document, "Part: Seal"))[0] == (
        "Part: Seal | Number: P-101"
    )


def test_a_definition_comes_with_its_term() -> None:
    page = b"<dl><dt>preinst</dt><dd>It runs before unpacking.</dd><dt>postinst</dt><dd>It runs after it.</dd></dl>"
    text, _ = answer("What runs after unpacking?", passages_of(parse_html(page), "It runs after"))
    assert text.endswith("postinst\nIt runs after it.")


def test_a_definition_far_down_an_announced_list_comes_with_its_term() -> None:
    entries = "".join(f"<dt>field{n}</dt><dd>Entry number {n} of the report on the pump.</dd>" for n in range(60))
    page = parse_html(f"<p>The fields mean:</p><dl>{entries}</dl>".encode())
    text, _ = answer("What does the field field50 say?", passages_of(page, "Entry number 50 "))
    assert text == f"{CUT}\nfield50\nEntry number 50 of the report on the pump.\n{CUT}"


@pytest.mark.parametrize(
    ("before", "quoted"),
    [
        ("The standby pump is started once a month.", "It must then run for ten minutes."),
        ("Die Reservepumpe wird monatlich gestartet.", "Sie muss danach zehn Minuten lang laufen."),
        ("La bomba de reserva se arranca cada mes.", "Después debe funcionar durante diez minutos."),
        ("La pompe de secours est démarrée chaque mois.", "Elle doit ensuite tourner pendant dix minutes."),
    ],
)
def test_a_quote_that_begins_with_a_pronoun_or_a_connective_has_the_sentence_before_it(
    before: str, quoted: str
) -> None:
    builder = DocumentBuilder()
    builder.add(BlockKind.PARAGRAPH, f"{before} {quoted}")
    text, (context, quote) = answer("Q?", passages_of(builder.build(), quoted, words=40))
    assert text == f"{before} {quoted}"
    assert (context.text, context.context) == (before, True)
    assert (quote.text, quote.context) == (quoted, False)


def test_a_quote_that_begins_with_a_pronoun_at_the_begin_of_its_section_has_the_heading() -> None:
    document = parse_markdown(b"# Pumps\n\n## Standby pump\n\nIt is greased weekly.\n")
    text, (context, _) = answer("How often?", passages_of(document, "It is greased"))
    assert text == "Standby pump\nIt is greased weekly."
    assert context.context


def test_what_the_question_names_is_quoted_from_a_heading_or_the_sentence_before() -> None:
    document = parse_markdown(
        b"# Manual\n\n## Standby pump\n\nGrease the bearings every 500 hours.\n\n"
        b"## Conveyor\n\nThe gearbox holds 4 litres. Fill in oil of grade 68.\n"
    )
    weights = {"standby": 3.0, "pump": 2.5, "bearings": 1.0, "greased": 1.0}
    text, _ = answer("How often is the standby pump greased?", passages_of(document, "Grease"), weights=weights)
    assert text == "Standby pump\nGrease the bearings every 500 hours."
    weights = {"oil": 1.5, "gearbox": 2.0}
    text, _ = answer("What oil is for the gearbox?", passages_of(document, "Fill in"), weights=weights)
    assert text == "The gearbox holds 4 litres. Fill in oil of grade 68."
    weights = {"oil": 1.5, "fill": 2.0}
    assert answer("?", passages_of(document, "Fill in"), weights=weights)[0] == "Fill in oil of grade 68."


def test_a_section_whose_heading_is_the_question_is_the_answer() -> None:
    document = parse_markdown(
        b"# Packages\n\n## How do I put a package on hold?\n\nThere are two ways. With apt, run:\n\n"
        b"    apt-mark hold foo\n\nWith dpkg it takes longer.\n\n## Other\n\nHold the line.\n"
    )
    passages = passages_of(document, "Hold the line", "With apt")
    text, _ = answer("How can I put a package on hold?", passages, weights={"hold": 3.0, "package": 1.0})
    assert text == "There are two ways. With apt, run:\n\napt-mark hold foo\n\nWith dpkg it takes longer."


def test_the_section_of_what_the_question_names_is_the_answer_in_the_manual_that_it_names() -> None:
    document = parse_markdown(b"# Screens\n\nIt shows mail.\n\n## 2.4. Sidebar\n\nIt lists all mailboxes.\n")
    weights = {"sidebar": 5.0, "mutt": 3.0}
    text, _ = answer("What is the sidebar of Mutt?", passages_of(document, "It shows", name="mutt.md"), weights=weights)
    assert text == "2.4. Sidebar\nIt lists all mailboxes."
    other = passages_of(document, "It shows", name="pine.md")
    assert "It shows mail." in answer("What is the sidebar of Mutt?", other, weights=weights)[0]


def test_the_table_of_contents_is_no_answer() -> None:
    contents = "\n".join(f"- 7.{number} How do I hold package {number}" for number in range(1, 9))
    document = parse_markdown(f"{contents}\n\nRun apt-mark hold.\n".encode())
    assert answer("How do I hold it?", passages_of(document, "7.3", "Run"))[0] == "Run apt-mark hold."


def test_several_points_are_lines_of_their_own_under_their_subjects() -> None:
    document = parse_markdown(
        b"# Manual\n\n## Standby pump\n\nGrease it every 500 hours. Paint is blue. Check the oil weekly.\n\n"
        b"## Conveyor\n\nGrease the chain daily.\n"
    )
    passages = passages_of(document, "Check the oil", "Grease the chain", "Grease it", words=40)
    text, quotes = answer("What is greased?", passages, points=3)
    assert text == (
        "Standby pump\n- Grease it every 500 hours.\n- Check the oil weekly.\n\nConveyor\n- Grease the chain daily."
    )
    assert [quote.context for quote in quotes] == [True, False, False, True, False]
    text, _ = answer("What is greased?", passages[:1], points=3)
    assert text == "- Grease it every 500 hours.\n- Check the oil weekly.", "one section needs no subject"


def test_points_of_documents_without_headings_are_under_the_names_of_the_documents() -> None:
    log = passages_of(parse_markdown(b"The seal leaks."), "The seal", name="log.txt")
    report = passages_of(parse_markdown(b"The seal was old."), "The seal", name="report.txt")
    text, _ = answer("What of the seal?", [*log, *report], points=2)
    assert text == "log.txt\n- The seal leaks.\n\nreport.txt\n- The seal was old."


def test_sentences_that_follow_each_other_are_one_point() -> None:
    document = parse_markdown(b"The pump is old. Its seal leaks a little. The sky is blue.\n")
    text, _ = answer("What of the pump?", passages_of(document, "The pump", "Its seal", words=40), points=2)
    assert text == "The pump is old. Its seal leaks a little."


def test_a_language_without_rules_has_no_references() -> None:
    assert not refers_back("Она должна работать.", "ru")
    assert not refers_back("It is possible to stop it.", "en")
    assert refers_back("“Then stop it.", "en")


_BLOCKS = st.lists(
    st.one_of(
        st.sampled_from(["# Head", "## It", "Then it is so. It is blue.", "Run this:", "    code here", "a | b | c"]),
        st.lists(st.sampled_from(["- one", "- 2. two", "- It stops.", "- so: it"]), min_size=1, max_size=9).map(
            "\n".join
        ),
        st.lists(st.sampled_from(["x | 1 | 2", "y | 3 | 4"]), min_size=1, max_size=3).map(
            lambda rows: "\n".join(["n | p | q", "--|--|--", *rows])
        ),
        st.text("aIt. :?\n漢。", max_size=50),
    ),
    max_size=12,
).map("\n\n".join)


@given(
    _BLOCKS,
    st.lists(st.floats(-5, 5), min_size=40, max_size=40),
    st.sampled_from(["How do I do it?", "What are they?", "When?", "Was?", "aIt"]),
    st.one_of(st.none(), st.integers(1, 8)),
    st.booleans(),
)
def test_every_quote_is_stored_text_in_bounds_and_context_has_a_quote_after_it(
    source: str, evidence: list[float], question: str, most: int | None, around: bool
) -> None:
    document = parse_markdown(source.encode())
    values = iter(evidence * 20)
    passages = []
    for each in passages_of(document, words=8):
        sentences = tuple(Sentence(one.start, one.end, next(values)) for one in each.sentences)
        passage = each.passage if around else replace(each.passage, surroundings=None)
        passages.append(RankedPassage(passage, 1.0, sentences))
    weights = {"one": 2.0, "it": 1.5, "head": 1.4}
    points = points_of(question, passages, most, 4.0, weights)
    assert len(points) <= (most or MAX_SENTENCES)
    assert bool(points) == any(each.sentences for each in passages)
    groups = grouped(points, passages)
    events: list[GenerationEvent] = []
    stream = QuoteStream(events.append, lambda: 0.0, groups, [each.passage for each in passages])
    stream.finish(Outcome(FinishReason.STOP, Usage(), 0.0, 0.0))
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    citations = [event for event in events if isinstance(event, Citation)]
    for citation in citations:
        assert citation.text == document.text[citation.start : citation.end]
        assert citation.text == text[citation.answer_start : citation.answer_end]
        assert len(citation.text) <= 2 * MAX_BLOCK_CHARACTERS
    assert not citations or not citations[-1].context
    ends = [(citation.answer_start, citation.answer_end) for citation in citations]
    assert ends == sorted(ends)
    main = [each for each in citations if not each.context]
    for number, one in enumerate(main):
        assert not any(one.start < other.end and other.start < one.end for other in main[:number])
    for group in groups:
        starts = [point.quote.start for point in group.points]
        assert starts == sorted(starts)
