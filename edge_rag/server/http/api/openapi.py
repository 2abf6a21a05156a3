"""The endpoints of the API, and the OpenAPI document that is made of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, Final, get_args, get_type_hints

import edge_rag
from edge_rag.core.answer import Citation, Finished, PassagesFound, TextDelta, Unsupported
from edge_rag.core.documents.jobs import JobPage
from edge_rag.core.monitoring.event import AuditEntry
from edge_rag.core.monitoring.status import DaemonStatus
from edge_rag.core.shapes.encoder import members
from edge_rag.model_store.jobs import ModelJob
from edge_rag.server.http.api import access as api_access
from edge_rag.server.http.api import evaluation, feedback, library, operation, questions
from edge_rag.server.http.api import models as api_models
from edge_rag.server.http.api.endpoints import EVENTS, PREFIX, Endpoint
from edge_rag.server.http.api.schema import Schemas, attributes, default_of, details, has_no_default, summary
from edge_rag.server.http.exchange import JSON
from edge_rag.server.http.probes import PROBES, HttpProbe
from edge_rag.service import access, ask, collections, documents, jobs, status
from edge_rag.service.admin import models, tokens
from edge_rag.service.admin.feedback import DELETE_FEEDBACK, GIVE_FEEDBACK, LIST_FEEDBACK
from edge_rag.service.call import Call, Operation
from edge_rag.service.collections import QuestionAsked, QuestionsAsked

_BYTES: Final = "application/octet-stream"
_BINARY: Final = {"type": "string", "format": "binary"}

DESCRIBE_API: Final = Operation("DescribeApi", None)

_ANSWER: Final = {
    PassagesFound: "passages",
    TextDelta: "text",
    Citation: "citation",
    Unsupported: "unsupported",
    Finished: "finished",
}
_QUESTIONS: Final = f"{PREFIX}/collections/{{collection}}/test-questions"
_AUDIT: Final = {AuditEntry: "event", operation.EntriesDropped: "dropped"}


async def describe_api(call: Call) -> Mapping[str, Any]:
    """Returns this document."""
    return document()


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        f"{PREFIX}/ask",
        ask.ASK,
        questions.ask,
        events=_ANSWER,
        whole=questions.whole_answer,
        question="question",
    ),
    Endpoint("GET", f"{PREFIX}/ask", ask.GET_ASK_OPTIONS, questions.ask_options),
    Endpoint("POST", f"{PREFIX}/search", ask.SEARCH, questions.search, question="question"),
    Endpoint("GET", f"{PREFIX}/collections", collections.LIST_COLLECTIONS, library.list_collections),
    Endpoint("POST", f"{PREFIX}/collections", collections.CREATE_COLLECTION, library.create_collection),
    Endpoint("GET", f"{PREFIX}/collections/{{collection}}", collections.GET_COLLECTION, library.get_collection),
    Endpoint("PATCH", f"{PREFIX}/collections/{{collection}}", collections.UPDATE_COLLECTION, library.update_collection),
    Endpoint(
        "DELETE", f"{PREFIX}/collections/{{collection}}", collections.DELETE_COLLECTION, library.delete_collection
    ),
    Endpoint("PUT", f"{PREFIX}/collections/{{collection}}/index", collections.MOVE_INDEX, library.move_index),
    Endpoint("GET", f"{PREFIX}/collections/{{collection}}/documents", documents.LIST_DOCUMENTS, library.list_documents),
    Endpoint(
        "GET",
        f"{PREFIX}/collections/{{collection}}/documents/{{document:path}}",
        documents.GET_DOCUMENT,
        library.get_document,
    ),
    Endpoint(
        "PUT",
        f"{PREFIX}/collections/{{collection}}/documents/{{document:path}}",
        documents.INGEST,
        library.put_document,
    ),
    Endpoint(
        "PUT",
        f"{PREFIX}/collections/{{collection}}/queue/{{document:path}}",
        jobs.START_INGEST,
        library.queue_document,
    ),
    Endpoint(
        "DELETE",
        f"{PREFIX}/collections/{{collection}}/documents/{{document:path}}",
        documents.DELETE_DOCUMENT,
        library.delete_document,
    ),
    Endpoint("GET", f"{PREFIX}/collections/{{collection}}/chunks", documents.LIST_CHUNKS, evaluation.list_chunks),
    Endpoint(
        "GET",
        f"{PREFIX}/collections/{{collection}}/chunks/{{position}}/terms",
        documents.GET_CHUNK_TERMS,
        evaluation.get_chunk_terms,
    ),
    Endpoint("GET", _QUESTIONS, collections.LIST_QUESTIONS, evaluation.list_test_questions),
    Endpoint("POST", _QUESTIONS, collections.CHANGE_QUESTIONS, evaluation.add_test_question),
    Endpoint("PUT", _QUESTIONS, collections.CHANGE_QUESTIONS, evaluation.replace_test_questions),
    Endpoint(
        "POST",
        f"{_QUESTIONS}/run",
        collections.RUN_QUESTIONS,
        evaluation.run_test_questions,
        events={QuestionAsked: "result", QuestionsAsked: "finished"},
    ),
    Endpoint("DELETE", f"{_QUESTIONS}/{{question}}", collections.CHANGE_QUESTIONS, evaluation.delete_test_question),
    Endpoint("GET", f"{PREFIX}/jobs", jobs.LIST_JOBS, operation.list_jobs),
    Endpoint("GET", f"{PREFIX}/jobs/{{job}}", jobs.GET_JOB, operation.get_job),
    Endpoint("POST", f"{PREFIX}/jobs/{{job}}/cancel", jobs.CANCEL_JOB, operation.cancel_job),
    Endpoint(
        "GET",
        f"{PREFIX}/jobs/{{job}}/events",
        jobs.WATCH_JOB,
        operation.watch_job,
        events={JobPage: "progress"},
        event_id=lambda page: int(page.cursor),
    ),
    Endpoint("GET", f"{PREFIX}/status", status.GET_STATUS, operation.get_status),
    Endpoint(
        "GET",
        f"{PREFIX}/status/events",
        status.WATCH_STATUS,
        operation.watch_status,
        events={DaemonStatus: "status"},
    ),
    Endpoint("GET", f"{PREFIX}/audit", status.LIST_AUDIT_EVENTS, operation.list_audit_events),
    Endpoint(
        "GET",
        f"{PREFIX}/audit/events",
        status.LIST_AUDIT_EVENTS,
        operation.follow_audit_events,
        events=_AUDIT,
        event_id=lambda event: event.number if isinstance(event, AuditEntry) else None,
    ),
    Endpoint("GET", f"{PREFIX}/usage", status.GET_USAGE, operation.get_usage),
    Endpoint("GET", f"{PREFIX}/models", status.LIST_MODELS, operation.list_models),
    Endpoint("PUT", f"{PREFIX}/models/{{role}}", status.USE_MODEL, operation.use_model),
    Endpoint("GET", f"{PREFIX}/models/catalog", models.LIST_INSTALLED_MODELS, api_models.list_recommended_models),
    Endpoint("GET", f"{PREFIX}/models/installed", models.LIST_INSTALLED_MODELS, api_models.list_installed_models),
    Endpoint("POST", f"{PREFIX}/models/installed", models.ADD_MODEL, api_models.add_model),
    Endpoint("DELETE", f"{PREFIX}/models/installed/{{model}}", models.REMOVE_MODEL, api_models.remove_model),
    Endpoint("POST", f"{PREFIX}/models/installed/{{model}}/verify", models.VERIFY_MODEL, api_models.verify_model),
    Endpoint("POST", f"{PREFIX}/models/installed/{{model}}/choose", models.CHOOSE_MODEL, api_models.choose_model),
    Endpoint(
        "GET",
        f"{PREFIX}/models/jobs/{{job}}/events",
        models.WATCH_MODEL_JOB,
        api_models.watch_model_job,
        events={ModelJob: "progress"},
        event_id=lambda job: int(job.change),
    ),
    Endpoint("POST", f"{PREFIX}/models/jobs/{{job}}/cancel", models.CANCEL_MODEL_JOB, api_models.cancel_model_job),
    Endpoint(
        "GET",
        f"{PREFIX}/backup",
        status.BACKUP,
        operation.backup,
        media_type="application/x-tar",
        file_name="backup.edge-rag",
    ),
    Endpoint("GET", f"{PREFIX}/backups", status.LIST_BACKUPS, operation.list_backups),
    Endpoint("POST", f"{PREFIX}/backups", status.MAKE_BACKUP, operation.make_backup),
    Endpoint(
        "GET",
        f"{PREFIX}/backups/{{backup}}",
        status.READ_BACKUP,
        operation.read_backup,
        media_type="application/x-tar",
        file_name="{backup}",
    ),
    Endpoint("DELETE", f"{PREFIX}/backups/{{backup}}", status.DELETE_BACKUP, operation.delete_backup),
    Endpoint("GET", f"{PREFIX}/tokens", tokens.LIST_TOKENS, api_access.list_tokens),
    Endpoint("POST", f"{PREFIX}/tokens", tokens.CREATE_TOKEN, api_access.create_token),
    Endpoint("PATCH", f"{PREFIX}/tokens/{{token}}", tokens.UPDATE_TOKEN, api_access.update_token),
    Endpoint("DELETE", f"{PREFIX}/tokens/{{token}}", tokens.REVOKE_TOKEN, api_access.revoke_token),
    Endpoint("POST", f"{PREFIX}/pairing-codes", tokens.CREATE_PAIRING_CODE, api_access.create_pairing_code),
    Endpoint("POST", f"{PREFIX}/feedback", GIVE_FEEDBACK, feedback.give_feedback),
    Endpoint("GET", f"{PREFIX}/feedback", LIST_FEEDBACK, feedback.list_feedback),
    Endpoint("DELETE", f"{PREFIX}/feedback/{{feedback}}", DELETE_FEEDBACK, feedback.delete_feedback),
    Endpoint("GET", f"{PREFIX}/whoami", access.WHO_AM_I, operation.who_am_i),
    Endpoint("POST", f"{PREFIX}/pair", access.PAIR, operation.pair),
    Endpoint("POST", f"{PREFIX}/session", access.SIGN_IN, operation.sign_in),
    Endpoint("DELETE", f"{PREFIX}/session", access.SIGN_OUT, operation.sign_out),
    Endpoint("GET", f"{PREFIX}/openapi.json", DESCRIBE_API, describe_api),
)
"""All endpoints."""

API_ROUTES: Final = tuple(endpoint.route() for endpoint in ENDPOINTS)
"""Their routes."""


@dataclass(frozen=True, slots=True)
class ErrorObject:
    """Why a request failed.

    Attributes:
        message: What happened and what to do.
        type: Its kind, as OpenAI's clients read it.
        param: The unusable parameter or field; null for other errors.
        code: Class of the error in lower case.
    """

    message: str
    type: str
    param: str | None
    code: str


@dataclass(frozen=True, slots=True)
class Error:
    """A failed request. The event ``error`` of a stream has the same data.

    Attributes:
        error: Why it failed.
    """

    error: ErrorObject


@cache
def document() -> dict[str, Any]:
    """Returns the OpenAPI 3.1 document."""
    requests, responses = Schemas(requests=True), Schemas(requests=False)
    error = responses.of(Error)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        path = re.sub(r":\w+\}", "}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, requests, responses, error)
    for probe in PROBES:
        paths[probe.path] = {"get": _probe(probe, error)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "edge-rag",
            "version": edge_rag.__version__,
            "description": "Cited answers from a box's own documents.",
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted((requests.components | responses.components).items())),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of the box; not needed without TLS on the box itself.",
                }
            },
        },
    }


def _operation(endpoint: Endpoint, requests: Schemas, responses: Schemas, error: dict[str, Any]) -> dict[str, Any]:
    hints = endpoint.hints
    paragraphs = [details(endpoint.handler)]
    role = endpoint.operation.role
    if role is not None:
        paragraphs.append(f"Needs the role {role.value}.")
    found: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": summary(endpoint.handler),
        "description": "\n\n".join(filter(None, paragraphs)),
        "parameters": _parameters(endpoint, hints.get("request"), requests),
    }
    if endpoint.has_body and "request" in hints:
        kind = hints["request"]
        shown = [member for member in members(kind) if member.name not in endpoint.parameters]
        if shown:
            body = requests.members(kind, shown)
            found["requestBody"] = {"required": bool(body.get("required")), "content": {JSON: {"schema": body}}}
    if endpoint.takes_content:
        found["requestBody"] = {"required": True, "content": {_BYTES: {"schema": _BINARY}}}
    found["responses"] = {
        "200": {"description": "Done.", "content": _content(endpoint, hints, responses)},
        "4XX": {"description": "The request cannot be served.", "content": {JSON: {"schema": error}}},
        "5XX": {"description": "The box cannot serve it now.", "content": {JSON: {"schema": error}}},
    }
    return {name: value for name, value in found.items() if value}


def _parameters(endpoint: Endpoint, kind: type | None, requests: Schemas) -> list[dict[str, Any]]:
    if kind is None:
        return []
    descriptions = attributes(kind)
    found: list[dict[str, Any]] = []
    for member in members(kind):
        in_path = member.name in endpoint.parameters
        if not in_path and endpoint.has_body:
            continue
        schema = _without_null(requests.of(member.hint))
        if not in_path and (default := default_of(kind, member.field)) is not None:
            schema = {**schema, "default": default}
        found.append(
            {
                "name": member.name,
                "in": "path" if in_path else "query",
                "required": in_path or has_no_default(kind, member.field),
                "description": descriptions.get(member.field, ""),
                "schema": schema,
            }
        )
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a parameter, which is absent rather than null."""
    if isinstance(schema.get("type"), list):
        return {**schema, "type": schema["type"][0]}
    inner = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return dict(inner[0]) if inner else schema


def _content(endpoint: Endpoint, hints: Mapping[str, Any], responses: Schemas) -> dict[str, Any]:
    content: dict[str, Any] = {}
    result = hints["return"]
    if endpoint.whole is not None:
        content[JSON] = {"schema": responses.of(get_type_hints(endpoint.whole)["return"])}
    if endpoint.events:
        named = {name: responses.of(kind) for kind, name in endpoint.events.items()}
        content[EVENTS] = {"schema": {"type": "string"}, "x-events": named}
    elif get_args(result) and get_args(result)[0] is bytes:
        content[endpoint.media_type] = {"schema": _BINARY}
    elif isinstance(result, type) and is_dataclass(result):
        content[JSON] = {"schema": responses.of(result)}
    else:
        content[JSON] = {"schema": {"type": "object"}}
    return content


def _probe(probe: HttpProbe, error: dict[str, Any]) -> dict[str, Any]:
    state = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
    answered = {"content": {JSON: {"schema": state}}}
    return {
        "operationId": probe.is_healthy.__name__,
        "summary": summary(probe.is_healthy),
        "description": "Needs no credentials.",
        "responses": {
            "200": {"description": "It is.", **answered},
            "4XX": {"description": "The request cannot be served.", "content": {JSON: {"schema": error}}},
            "503": {"description": "It is not.", **answered},
        },
    }
