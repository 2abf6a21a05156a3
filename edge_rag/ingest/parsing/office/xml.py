"""XML as a stream of events; nothing outside of the document is ever looked at.

Expat reads it. Entities are what XML attacks are made of, and no document format needs to declare any, so a declaration
is refused where it stands; a document type is tolerated, and never fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, NoReturn, Protocol
from xml.parsers import expat

from edge_rag.errors import BrokenDocument

_PIECE_BYTES = 1 << 16
_SEPARATOR = " "
_MOST_OPEN_TAGS = 10_000
_OFFICE = "http://schemas.openxmlformats.org/"
_STRICT = "http://purl.oclc.org/ooxml/"
_OPEN_DOCUMENT = "urn:oasis:names:tc:opendocument:xmlns:"
_PREFIXES: Mapping[str, str] = {
    _OFFICE + "wordprocessingml/2006/main": "w",
    _STRICT + "wordprocessingml/main": "w",
    _OFFICE + "drawingml/2006/main": "a",
    _STRICT + "drawingml/main": "a",
    _OFFICE + "presentationml/2006/main": "p",
    _STRICT + "presentationml/main": "p",
    _OFFICE + "officeDocument/2006/relationships": "r",
    _STRICT + "officeDocument/relationships": "r",
    _OFFICE + "officeDocument/2006/math": "m",
    _STRICT + "officeDocument/math": "m",
    _OFFICE + "markup-compatibility/2006": "mc",
    _OFFICE + "package/2006/relationships": "rel",
    _OFFICE + "package/2006/metadata/core-properties": "cp",
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://purl.org/dc/terms/": "dcterms",
    _OPEN_DOCUMENT + "text:1.0": "text",
    _OPEN_DOCUMENT + "table:1.0": "table",
    _OPEN_DOCUMENT + "office:1.0": "office",
    _OPEN_DOCUMENT + "drawing:1.0": "draw",
    _OPEN_DOCUMENT + "presentation:1.0": "presentation",
    _OPEN_DOCUMENT + "meta:1.0": "meta",
    "http://www.idpf.org/2007/opf": "opf",
    "http://www.daisy.org/z3986/2005/ncx/": "ncx",
    "urn:oasis:names:tc:opendocument:xmlns:container": "container",
    "http://www.w3.org/2001/04/xmlenc#": "enc",
}
"""Namespaces that are told apart. A name is given as ``prefix:local``, whatever prefix the document itself uses."""


class XmlHandler(Protocol):
    """Takes the events of a document in order."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """A tag opens; names of unknown namespaces come as ``?:local``, attributes without one as ``local``."""
        ...

    def end(self, name: str) -> None:
        """A tag closes."""
        ...

    def text(self, text: str) -> None:
        """Text between two tags."""
        ...


def read_xml(part: IO[bytes], name: str, handler: XmlHandler) -> None:
    """Reads a part.

    Args:
        part: The bytes.
        name: What the part is called, for errors.
        handler: Takes the events.

    Raises:
        BrokenDocument: It is not well-formed, declares entities, or is nested beyond any use.
    """
    parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
    parser.buffer_text = True
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    names: dict[str, str] = {}
    depth = 0

    def known(found: str) -> str:
        if found not in names:
            uri, separator, local = found.rpartition(_SEPARATOR)
            names[found] = f"{_PREFIXES.get(uri, '?')}:{local}" if separator else local
        return names[found]

    def start(found: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MOST_OPEN_TAGS:
            raise BrokenDocument(f"its part {name!r} is nested more than {_MOST_OPEN_TAGS:,} deep")
        handler.start(known(found), {known(key): value for key, value in attributes.items()})

    def end(found: str) -> None:
        nonlocal depth
        depth -= 1
        handler.end(known(found))

    def refuse_entity(*_: object) -> NoReturn:
        raise BrokenDocument(f"its part {name!r} declares XML entities, which no document of its kind needs")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = handler.text
    parser.EntityDeclHandler = refuse_entity
    parser.UnparsedEntityDeclHandler = refuse_entity
    parser.ExternalEntityRefHandler = refuse_entity
    try:
        while piece := part.read(_PIECE_BYTES):
            parser.Parse(piece, False)
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise BrokenDocument(f"its part {name!r} is damaged: {error}") from error
