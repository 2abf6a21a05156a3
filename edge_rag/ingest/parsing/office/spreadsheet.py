"""Spreadsheet parser (XLSX, XLSB, XLS, ODS): one section per sheet, one record per row; read with calamine."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta

import python_calamine as calamine

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.core.documents.metadata import MetadataValue
from edge_rag.errors import BrokenDocument, EncryptedDocument
from edge_rag.ingest.parsing.document_builder import DocumentBuilder, add_records
from edge_rag.ingest.parsing.document_format import Format, ParseContext, UnpackedBytes, ZipKind
from edge_rag.ingest.parsing.office.opendocument import opendocument_properties, opendocument_zip_kind
from edge_rag.ingest.parsing.office.package import Container, is_old_spreadsheet, office_properties

_Cell = int | float | str | bool | time | date | datetime | timedelta


def parse_spreadsheet(content: bytes, unpacked: UnpackedBytes, is_container: bool) -> ParsedDocument:
    """Reads the visible sheets in order; a formula has the value that was stored with it.

    Args:
        content: The bytes.

    Raises:
        BrokenDocument, EncryptedDocument, DocumentTooLarge: The file cannot be read, or exceeds the limit.
    """
    properties: dict[str, MetadataValue] = {}
    if is_container:
        container = Container(content, unpacked)
        container.check_unpacked_size()
        properties = office_properties(container) or opendocument_properties(container)
    builder = DocumentBuilder()
    try:
        with calamine.load_workbook(io.BytesIO(content)) as workbook:
            for sheet in workbook.sheets_metadata:
                if sheet.visible == calamine.SheetVisibleEnum.Visible and sheet.typ == calamine.SheetTypeEnum.WorkSheet:
                    builder.add(BlockKind.HEADING, sheet.name, 1)
                    add_records(builder, _rows(workbook.get_sheet_by_name(sheet.name)))
    except calamine.PasswordError as error:
        raise EncryptedDocument("it is encrypted and needs a password; save a copy without one") from error
    except (calamine.CalamineError, OSError, ValueError) as error:
        raise BrokenDocument(f"it is a damaged spreadsheet: {error}") from error
    return builder.build(str(properties.get("title", "")), metadata=properties)


def _rows(sheet: calamine.CalamineSheet) -> Iterator[list[str]]:
    for row in sheet.iter_rows():
        yield [_text(cell) for cell in row]


def _text(cell: _Cell) -> str:
    match cell:
        case bool():
            return "yes" if cell else "no"
        case float():
            return f"{cell:.15g}"
        case datetime():
            return cell.date().isoformat() if cell.time() == time() else cell.isoformat(" ", "seconds")
        case date() | time():
            return cell.isoformat()
        case _:
            return str(cell)


def _parse_container(content: bytes, context: ParseContext) -> ParsedDocument:
    return parse_spreadsheet(content, context.unpacked, is_container=True)


def _parse_compound_file(content: bytes, context: ParseContext) -> ParsedDocument:
    return parse_spreadsheet(content, context.unpacked, is_container=False)


_READS = "one section per visible sheet, one record per row with the column names; formulas by their stored value"

XLSX = Format(
    name="XLSX",
    title="Excel",
    media_type="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    suffixes=(".xlsx", ".xlsm"),
    reads=_READS,
    parse=_parse_container,
    zip_kind=ZipKind(part="xl/workbook.xml", folder="xl/"),
)
XLSB = Format(
    name="XLSB",
    title="Excel, binary workbook",
    media_type="application/vnd.ms-excel.sheet.binary.macroenabled.12",
    suffixes=(".xlsb",),
    reads=_READS,
    parse=_parse_container,
    zip_kind=ZipKind(part="xl/workbook.bin"),
)
XLS = Format(
    name="XLS",
    title="Excel 97 to 2003",
    media_type="application/vnd.ms-excel",
    suffixes=(".xls",),
    reads=_READS,
    parse=_parse_compound_file,
    sniff=is_old_spreadsheet,
)
ODS = Format(
    name="ODS",
    title="OpenDocument spreadsheet",
    media_type="application/vnd.oasis.opendocument.spreadsheet",
    suffixes=(".ods",),
    reads=_READS,
    parse=_parse_container,
    zip_kind=opendocument_zip_kind("application/vnd.oasis.opendocument.spreadsheet"),
)
