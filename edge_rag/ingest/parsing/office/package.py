"""What Office Open XML files have in common: relations between parts, and properties of the document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edge_rag.core.documents.metadata import MetadataValue
from edge_rag.ingest.parsing.office.container import Container, resolve
from edge_rag.ingest.parsing.office.xml import read_xml
from edge_rag.ingest.parsing.properties import iso_moment, properties

_CORE_PROPERTIES = "docProps/core.xml"
_MOST_PROPERTY_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True)
class Relation:
    """Where one part points to another.

    Attributes:
        kind: Last word of the relation's type, for example ``slide``.
        target: Name of the other part.
    """

    kind: str
    target: str


class _Relations:
    def __init__(self, source: str) -> None:
        self.found: dict[str, Relation] = {}
        self._source = source

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "rel:Relationship" and attributes.get("TargetMode") != "External":
            kind = attributes.get("Type", "").rpartition("/")[2]
            self.found[attributes.get("Id", "")] = Relation(kind, resolve(self._source, attributes.get("Target", "")))

    def end(self, name: str) -> None:
        """Nothing is gathered between tags."""

    def text(self, text: str) -> None:
        """Relations hold no text."""


def relations_of(container: Container, part: str) -> dict[str, Relation]:
    """Returns the relations of a part by id, those to other files left out; of the container itself where it is empty.

    Raises:
        BrokenDocument: They cannot be read.
    """
    folder, _, file = part.rpartition("/")
    name = f"{folder}/_rels/{file}.rels".lstrip("/")
    if name not in container:
        return {}
    relations = _Relations(part)
    with container.open(name) as source:
        read_xml(source, name, relations)
    return relations.found


def main_part(container: Container) -> str:
    """Name of the part that the document begins with, or empty."""
    relations = relations_of(container, "").values()
    return next((relation.target for relation in relations if relation.kind == "officeDocument"), "")


class _Properties:
    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._open = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._open = name

    def end(self, name: str) -> None:
        self._open = ""

    def text(self, text: str) -> None:
        if self._open:
            self.found[self._open] = (self.found.get(self._open, "") + text)[:_MOST_PROPERTY_CHARACTERS]


def office_properties(container: Container) -> dict[str, MetadataValue]:
    """Returns what an Office Open XML file says of itself, as metadata.

    Raises:
        BrokenDocument: It cannot be read.
    """
    said = read_properties(container, _CORE_PROPERTIES)
    created, modified = (iso_moment(said.get(f"dcterms:{name}", "")) for name in ("created", "modified"))
    return properties(said.get("dc:title", ""), said.get("dc:creator", ""), created, modified)


def read_properties(container: Container, part: str) -> dict[str, str]:
    """Returns the texts of a part by XML name, for example ``dc:title``; none where there is no such part.

    Raises:
        BrokenDocument: It cannot be read.
    """
    if part not in container:
        return {}
    found = _Properties()
    with container.open(part) as source:
        read_xml(source, part, found)
    return found.found
