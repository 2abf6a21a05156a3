"""Files made to harm whoever reads them, and what has to become of each.

All are small; what they ask for is not. ``CANARY_FILE`` and ``CANARY_URL`` stand in them where a reader that follows
what a file says would read or call something.
"""

import io
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from edge_rag.errors import BrokenDocument, DocumentRejected, DocumentTooLarge, EmptyDocument, UnsupportedFormat
from tests.unit.ingest.sample_files import OPEN_DOCUMENT, SAMPLES, WORD, changed_part, zipped

CANARY_FILE = "/CANARY-FILE"
CANARY_URL = "http://127.0.0.1:1/CANARY-URL"
_BOMB_BYTES = 272 * 2**20


@dataclass(frozen=True)
class HostileFile:
    """A file, and the errors that may refuse it with a reason like this; without any, it is harmless once read."""

    name: str
    content: Callable[[], bytes]
    outcome: tuple[type[DocumentRejected], ...] = ()
    reason: str = ""


def hostile_files(canary_file: str = CANARY_FILE, canary_url: str = CANARY_URL) -> dict[str, HostileFile]:
    """Returns the files by what they try."""
    laughs = "".join(
        f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' if level else '<!ENTITY l0 "lol">' for level in range(10)
    )
    quadratic = f'<!DOCTYPE w [<!ENTITY a "{"a" * 50_000}">]>'
    outside = f'<!DOCTYPE w [<!ENTITY f SYSTEM "file://{canary_file}"><!ENTITY u SYSTEM "{canary_url}">]>'
    parameter = f'<!DOCTYPE w [<!ENTITY % p SYSTEM "{canary_url}"> %p;]>'
    entities = {
        "billion laughs": word(f"<!DOCTYPE w [{laughs}]>", "&l9;"),
        "quadratic blow-up": word(quadratic, "&a;" * 50_000),
        "external entities": word(outside, "&f;&u;"),
        "external parameter entity": word(parameter, "x"),
    }
    files = {
        what: HostileFile("a.docx", partial(bytes, content), (BrokenDocument,), "entities")
        for what, content in entities.items()
    }
    too_large = (DocumentTooLarge,)
    files |= {
        "external entities in a sheet": HostileFile(
            "a.xlsx",
            lambda: changed_part(SAMPLES["a.xlsx"], "xl/sharedStrings.xml", outside + sheet_strings("&f;&u;")),
            (BrokenDocument,),
            "damaged",
        ),
        "external document type": HostileFile(
            "a.docx", lambda: word(f'<!DOCTYPE w SYSTEM "{canary_url}">', "Nothing was fetched.")
        ),
        "linked images and styles": HostileFile(
            "a.html", f'<link href="{canary_url}"><img src="file://{canary_file}"><p>Seen.'.encode
        ),
        "flat bomb in a text": HostileFile(
            "a.docx", lambda: bomb("word/document.xml", SAMPLES["a.docx"]), too_large, "unpacks"
        ),
        "flat bomb in a sheet": HostileFile(
            "a.xlsx", lambda: bomb("xl/worksheets/sheet1.xml", SAMPLES["a.xlsx"]), too_large, "unpacks"
        ),
        "flat bomb in a book": HostileFile(
            "a.epub", lambda: bomb("OEBPS/text/a.xhtml", SAMPLES["a.epub"]), too_large, "unpacks"
        ),
        "overlapping bomb": HostileFile("a.epub", overlapping_bomb, (*too_large, BrokenDocument), r"unpacks|damaged"),
        "nested bomb": HostileFile("a.zip", nested_bomb, (UnsupportedFormat,), "ZIP archive"),
        "bomb attached to mail": HostileFile("a.eml", lambda: attached(bomb("word/document.xml", SAMPLES["a.docx"]))),
        "many empty parts": HostileFile("a.docx", lambda: many_parts(30_000), too_large, "parts"),
        "parts with names that lead outside": HostileFile(
            "a.odt", lambda: changed_part(SAMPLES["a.odt"], f"../../../..{canary_file}", "out")
        ),
        "deep XML": HostileFile(
            "a.docx", lambda: word("", "<w:r>" * 1_000_000 + "</w:r>" * 1_000_000), (BrokenDocument,), "nested"
        ),
        "deep tables": HostileFile(
            "a.odt",
            lambda: changed_part(
                SAMPLES["a.odt"],
                "content.xml",
                f"<office:document-content {OPEN_DOCUMENT}>"
                + "<table:table-row><table:table-cell>" * 100_000
                + "</table:table-cell></table:table-row>" * 100_000
                + "</office:document-content>",
            ),
            (BrokenDocument,),
            "nested",
        ),
        "a cell at the far corner of a sheet": HostileFile(
            "a.xlsx",
            lambda: changed_part(SAMPLES["a.xlsx"], "xl/worksheets/sheet1.xml", far_corner()),
            too_large,
            "memory|gave up",
        ),
        "deep PDF arrays": HostileFile(
            "a.pdf", lambda: pdf(b"/X " + b"[" * 1_000_000), (BrokenDocument, EmptyDocument), r"\w"
        ),
        "a million pages claimed": HostileFile(
            "a.pdf", lambda: pdf(b"", b"<</Type/Pages/Kids[3 0 R]/Count 1000000>>"), (*too_large, BrokenDocument), r"\w"
        ),
        "looping page tree": HostileFile(
            "a.pdf",
            lambda: pdf(b"", b"<</Type/Pages/Kids[2 0 R 2 0 R]/Count 9>>"),
            (BrokenDocument, EmptyDocument),
            r"\w",
        ),
        "looping outline": HostileFile(
            "a.pdf", lambda: pdf(b"/Outlines 2 0 R"), (BrokenDocument, EmptyDocument), r"\w"
        ),
        "looping cross-references": HostileFile(
            "a.pdf", lambda: SAMPLES["a.pdf"].replace(b"trailer\n<<", b"trailer\n<< /Prev 9 "), (), ""
        ),
        "object stream in itself": HostileFile("a.pdf", object_stream_loop, (BrokenDocument, EmptyDocument), r"\w"),
        "deflated a thousandfold in a PDF": HostileFile(
            "a.pdf", lambda: pdf_with_content(zlib.compress(b" " * 100_000_000, 1)), (*too_large, EmptyDocument), r"\w"
        ),
        "huge picture in a PDF": HostileFile("a.pdf", huge_picture, (*too_large, BrokenDocument, EmptyDocument), r"\w"),
        "deep JSON": HostileFile("a.json", lambda: b"[" * 5_000_000),
        "a million open tags": HostileFile(
            "a.html",
            lambda: b"<div>" * 1_000_000 + b"x",
            (*too_large, BrokenDocument),
            r"memory|longer|processor|gave up",
        ),
        "quotes in quotes": HostileFile("a.md", lambda: b"> " * 200_000 + b"x", (BrokenDocument,), "nested"),
        "lists in lists": HostileFile("a.md", lambda: b"- " * 5_000 + b"x", (BrokenDocument,), "nested"),
        "open brackets": HostileFile("a.md", lambda: b"![" * 20_000, (BrokenDocument,), "nested"),
        "stars": HostileFile("a.md", lambda: b"*a _b " * 10_000),
        "a cell of forty megabytes": HostileFile(
            "a.csv", lambda: b'a,b\n"' + b"x" * 40_000_000, (BrokenDocument,), "line 2"
        ),
        "groups in groups": HostileFile("a.rtf", lambda: b"{\\rtf1" + b"{" * 2_000_000 + b"x"),
        "mail in mail": HostileFile("a.eml", lambda: nested_mail(10_000), (BrokenDocument,), "nested"),
        "parts in parts": HostileFile("a.eml", lambda: nested_parts(10_000), (BrokenDocument,), "nested"),
        "many small parts": HostileFile("a.eml", lambda: many_attachments(5_000), (BrokenDocument,), "parts"),
        "header of a million words": HostileFile(
            "a.eml", lambda: b"From: a@example.org\nSubject: " + b"=?utf-8?q?a?= " * 1_000_000 + b"\n\nhello"
        ),
    }
    return files


def word(document_type: str, text: str) -> bytes:
    body = f"{document_type}<w:document {WORD}><w:body><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:body></w:document>"
    return zipped({"[Content_Types].xml": "<Types/>", "word/document.xml": body})


def sheet_strings(text: str) -> str:
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    return f'<sst xmlns="{space}">' + f"<si><t>{text}</t></si>" * 12 + "</sst>"


def far_corner() -> str:
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    cells = "".join(
        f'<row r="{row}"><c r="{column}{row}"><v>1</v></c></row>' for row, column in ((1, "A"), (1_048_576, "XFD"))
    )
    return f'<worksheet xmlns="{space}"><sheetData>{cells}</sheetData></worksheet>'


@cache
def bomb(part: str, content: bytes) -> bytes:
    """A document whose ``part`` unpacks to more than is allowed."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist() if name != part}
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, other in parts.items():
            archive.writestr(name, other, zipfile.ZIP_STORED if name == "mimetype" else None)
        with archive.open(part, "w", force_zip64=True) as stream:
            for _ in range(_BOMB_BYTES // 2**22):
                stream.write(b" " * 2**22)
    return target.getvalue()


def overlapping_bomb() -> bytes:
    """A book thousands of whose parts are the same megabytes of the file."""
    book = zipfile.ZipFile(io.BytesIO(SAMPLES["a.epub"]))
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in book.namelist():
            archive.writestr(name, book.read(name), zipfile.ZIP_STORED if name == "mimetype" else None)
        archive.writestr("OEBPS/x", b" " * 2**24)
        shared = archive.getinfo("OEBPS/x")
        items = "".join(f'<item id="i{n}" href="p{n}" media-type="text/html"/>' for n in range(200))
        spine = "".join(f'<itemref idref="i{n}"/>' for n in range(200))
        package = f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{spine}</spine></package>'
        for number in range(200):
            copy = zipfile.ZipInfo(f"OEBPS/p{number}")
            copy.compress_type, copy.CRC = shared.compress_type, shared.CRC
            copy.header_offset, copy.file_size, copy.compress_size = (
                shared.header_offset,
                shared.file_size,
                shared.compress_size,
            )
            archive.filelist.append(copy)
            archive.NameToInfo[copy.filename] = copy
    return changed_overlap(target.getvalue(), package)


def changed_overlap(content: bytes, package: str) -> bytes:
    """Puts a package description at the end of the archive, where it replaces the first."""
    target = io.BytesIO(content)
    with zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED) as archive:
        old = archive.getinfo("OEBPS/book.opf")
        archive.filelist.remove(old)
        del archive.NameToInfo["OEBPS/book.opf"]
        archive.writestr("OEBPS/book.opf", package)
    return target.getvalue()


def nested_bomb() -> bytes:
    inner = zipped({"0.txt": bytes(2**20)})
    for _ in range(5):
        inner = zipped({f"{number}.zip": inner for number in range(16)})
    return inner


def many_parts(count: int) -> bytes:
    return zipped({"word/document.xml": "<x/>", **{f"word/{number}.xml": "" for number in range(count)}})


def attached(content: bytes) -> bytes:
    from email.message import EmailMessage

    message = EmailMessage()
    message["Subject"] = "See what is attached"
    message.set_content("The attachment is not what it seems.")
    message.add_attachment(content, maintype="application", subtype="octet-stream", filename="a.docx")
    return message.as_bytes()


def nested_mail(depth: int) -> bytes:
    return b"Content-Type: message/rfc822\n\n" * depth + b"Subject: x\n\nx"


def nested_parts(depth: int) -> bytes:
    return b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (level, level) for level in range(depth)
    )


def many_attachments(count: int) -> bytes:
    part = b"--b\nContent-Type: text/plain\n\nx\n"
    return b"Content-Type: multipart/mixed; boundary=b\n\n" + part * count + b"--b--\n"


def pdf(
    catalog: bytes, pages: bytes = b"<</Type/Pages/Kids[3 0 R]/Count 1>>", page: bytes = b"", more: bytes = b""
) -> bytes:
    """A PDF without a table of cross-references, which a reader has to make up itself."""
    return (
        b"%PDF-1.7\n2 0 obj"
        + pages
        + b"endobj\n3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]"
        + page
        + b">>endobj\n"
        + more
        + b"1 0 obj<</Type/Catalog/Pages 2 0 R"
        + catalog
        + b">>endobj\ntrailer<</Root 1 0 R>>\n"
    )


def stream(number: int, entries: bytes, content: bytes) -> bytes:
    return b"%d 0 obj<<%s/Length %d>>stream\n%s\nendstream endobj\n" % (number, entries, len(content), content)


def pdf_with_content(deflated: bytes) -> bytes:
    return pdf(b"", page=b"/Contents 4 0 R", more=stream(4, b"/Filter/FlateDecode", deflated))


def object_stream_loop() -> bytes:
    loop = stream(4, b"/Type/ObjStm/N 1/First 4/Extends 4 0 R", b"4 0 <</Type/ObjStm/Extends 4 0 R>>")
    return pdf(b"", page=b"/Contents 4 0 R/Resources 4 0 R", more=loop)


def huge_picture() -> bytes:
    sizes = b"/Type/XObject/Subtype/Image/Width 200000/Height 200000/ColorSpace/DeviceRGB/BitsPerComponent 8"
    drawn = stream(4, b"", b"q 600 0 0 800 0 0 cm /I Do Q") + stream(
        5, sizes + b"/Filter/FlateDecode", zlib.compress(bytes(10_000_000))
    )
    return pdf(b"", page=b"/Contents 4 0 R/Resources<</XObject<</I 5 0 R>>>>", more=drawn)
