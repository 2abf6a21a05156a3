"""Small documents that take a naive reader quadratic time or worse, by what they repeat.

All are deterministic. ``pathological_files`` are read in time that grows with their size. ``endless_files`` take
libraries minutes that we do not change; the limit of processor time ends them.
"""

from collections.abc import Callable
from functools import partial

from tests.support.hostile_files import pdf, stream
from tests.unit.ingest.sample_files import OPEN_DOCUMENT, SAMPLES, WORD, changed_part, zipped

_PARAGRAPH = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"

Maker = Callable[[], bytes]


def pathological_files(size: int = 300_000) -> dict[str, tuple[str, Maker]]:
    """Returns name and maker of each file by what it repeats; text formats have about ``size`` bytes."""
    repeated: dict[str, tuple[str, str, str, str]] = {
        "one letter": ("a.txt", "", "a", ""),
        "one long line of spaces": ("a.txt", "a", " ", "b"),
        "lines of one letter": ("a.txt", "", "a\n", ""),
        "combining marks of two classes": ("a.txt", "a", "\u0301\u0316", ""),
        "combining marks of one class": ("a.txt", "a", "\u0301", ""),
        "open brackets": ("a.md", "", "[a](<b", ""),
        "emphasis": ("a.md", "", "*a_ ", ""),
        "nested quotes": ("a.md", "", ">" * 40 + "a\n", ""),
        "link definitions": ("a.md", "", '[a]: b "c\n', ""),
        "backticks": ("a.md", "", "`a``", ""),
        "open tags": ("a.html", "", "<a ", ""),
        "open attributes": ("a.html", "", "<a x='", ""),
        "open comments": ("a.html", "", "<!--", ""),
        "open comments and one tag": ("a.html", "", "<!--", ">"),
        "open sections": ("a.html", "", "<![CDATA[", "]>"),
        "open declarations": ("a.html", "", "<?", ""),
        "open end tags": ("a.html", "", "</a ", ""),
        "declared encodings": ("a.html", "", "<meta charset=", ""),
        "spaces in code": ("a.html", "<pre>a", " ", "b"),
        "commas": ("a.csv", "", ",", ""),
        "quotation marks": ("a.csv", "a,b\n", '""', ""),
        "quoted parameters": ("a.eml", 'From: a@b\nContent-Type: text/plain; a="', ";", "\n\nx"),
        "escaped quotes in parameters": ("a.eml", 'From: a@b\nContent-Type: text/plain; a="', ';\\"', "\n\nx"),
        "encoded words": ("a.eml", "Subject: ", "=?utf-8?q?a?= ", "\n\nx"),
        "paragraphs of RTF": ("a.rtf", "{\\rtf1 ", "\\par a", ""),
        "groups of RTF": ("a.rtf", "{\\rtf1 ", "{\\*\\x a}", ""),
    }
    files: dict[str, tuple[str, Maker]] = {
        what: (name, partial(_repeated, start, unit, end, size)) for what, (name, start, unit, end) in repeated.items()
    }
    files["attachments"] = ("a.eml", partial(mail, [("a.txt", b"x")] * 1_999))
    files["references to one note"] = ("a.docx", partial(references_to_one_note, 3_000, 3_000))
    files["a long text in nested tables"] = ("a.docx", partial(nested_tables, 2_500, "x" * 5_000_000))
    files["nested tables of OpenDocument"] = ("a.odt", partial(nested_rows, 3_000, "x" * 5_000_000))
    files["one slide many times"] = ("a.pptx", partial(one_slide, 4_000, 2_000))
    return files


def endless_files() -> dict[str, tuple[str, Maker]]:
    return {
        "a font table of RTF": ("a.rtf", lambda: b"{\\rtf1{\\fonttbl" + b"{\\f0 " * 60_000),
        "pictures drawn twice by each other": ("a.pdf", lambda: doubled_forms(24)),
        "open elements": ("a.html", lambda: b"<div>" * 3_000_000),
    }


def _repeated(start: str, unit: str, end: str, size: int) -> bytes:
    return (start + unit * (size // len(unit.encode())) + end).encode()


def mail(attachments: list[tuple[str, bytes]]) -> bytes:
    parts = (
        b"--b\nContent-Type: application/octet-stream\nContent-Disposition: attachment; filename=%s\n\n%s\n"
        % (name.encode(), content)
        for name, content in attachments
    )
    head = b"Subject: parts\nFrom: a@b\nContent-Type: multipart/mixed; boundary=b\n\n"
    return head + b"".join(parts) + b"--b--\n"


def references_to_one_note(references: int, paragraphs: int) -> bytes:
    reference = "<w:r><w:footnoteReference w:id='1'/></w:r>"
    body = f"<w:p>{reference * references}</w:p>"
    note = _PARAGRAPH.format("note") * paragraphs
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "word/document.xml": f"<w:document {WORD}><w:body>{body}</w:body></w:document>",
            "word/footnotes.xml": f'<w:footnotes {WORD}><w:footnote w:id="1">{note}</w:footnote></w:footnotes>',
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{_RELATIONS}">'
            '<Relationship Id="r1" Type="x/footnotes" Target="footnotes.xml"/></Relationships>',
        }
    )


def nested_tables(depth: int, text: str) -> bytes:
    cell = f"<w:tbl><w:tr><w:tc>{_PARAGRAPH.format('a')}</w:tc><w:tc>"
    body = cell * depth + _PARAGRAPH.format(text) + "</w:tc></w:tr></w:tbl>" * depth
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "word/document.xml": f"<w:document {WORD}><w:body>{body}</w:body></w:document>",
        }
    )


def nested_rows(depth: int, text: str) -> bytes:
    row = "<table:table-row><table:table-cell><text:p>a</text:p></table:table-cell><table:table-cell>"
    end = "</table:table-cell></table:table-row>"
    content = row * depth + f"<text:p>{text}</text:p>" + end * depth
    return changed_part(
        SAMPLES["a.odt"], "content.xml", f"<office:document-content {OPEN_DOCUMENT}>{content}</office:document-content>"
    )


def one_slide(times: int, paragraphs: int) -> bytes:
    office = "http://schemas.openxmlformats.org"
    names = (
        f'xmlns:p="{office}/presentationml/2006/main" xmlns:a="{office}/drawingml/2006/main" '
        f'xmlns:r="{office}/officeDocument/2006/relationships"'
    )
    slide = "<p:sldId r:id='r1'/>"
    text = "<a:p><a:r><a:t>seal</a:t></a:r></a:p>" * paragraphs
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "ppt/presentation.xml": f"<p:presentation {names}>{slide * times}</p:presentation>",
            "ppt/_rels/presentation.xml.rels": f'<Relationships xmlns="{_RELATIONS}">'
            '<Relationship Id="r1" Type="x/slide" Target="slides/slide1.xml"/></Relationships>',
            "ppt/slides/slide1.xml": f"<p:sld {names}><p:sp>{text}</p:sp></p:sld>",
        }
    )


def doubled_forms(depth: int) -> bytes:
    """A page whose content is drawn twice by a form that is drawn twice by a form, and so on."""
    last = 4 + depth
    entries = b"/Type/XObject/Subtype/Form/BBox[0 0 600 800]/Resources<</XObject<</F %d 0 R>>/Font<</T %d 0 R>>>>"
    forms = b"".join(
        stream(number, entries % (number + 1, last + 1), b"/F Do /F Do") for number in range(5, last)
    ) + stream(last, entries % (last, last + 1), b"BT /T 9 Tf 10 10 Td (seal) Tj ET")
    font = b"%d 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\n" % (last + 1)
    page = b"/Contents 4 0 R/Resources<</XObject<</F 5 0 R>>>>"
    return pdf(b"", page=page, more=stream(4, b"", b"/F Do") + forms + font)
