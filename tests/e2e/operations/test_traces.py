from collections.abc import Callable

import grpc
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from tests.e2e.support.collector import attributes, serving
from tests.e2e.support.running_daemon import RunningDaemon, ingest

VALVE = {"valve.md": b"# Valve\n\nThe relief valve opens at 6 bar. It is tested every spring.\n"}
QUESTION = "When does the relief valve open?"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def ask(address: str, request_id: str, parent: str = "", **fields: object) -> list[rag_pb2.AskResponse]:
    free = rag_pb2.ANSWER_MODE_FREE
    few: dict[str, object] = {"sampling": rag_pb2.Sampling(max_tokens=24)}
    request = rag_pb2.AskRequest(question=QUESTION, request_id=request_id, mode=free, **(few | fields))  # type: ignore[arg-type]
    with grpc.insecure_channel(address) as channel:
        metadata = (("traceparent", parent),) if parent else ()
        return list(rag_pb2_grpc.RagStub(channel).Ask(request, timeout=60, metadata=metadata))


def test_a_call_and_its_stages_are_spans_below_the_clients(start: Callable[..., RunningDaemon]) -> None:
    with serving() as collector:
        running = start(config=f'[traces]\nendpoint = "{collector.endpoint}"\n')
        ingest(running.address, VALVE)
        *_, last = ask(running.address, "traced", f"00-{TRACE}-{PARENT}-01")
        with pytest.raises(grpc.RpcError):
            ask(running.address, "refused", sampling=rag_pb2.Sampling(max_tokens=8000))
        assert running.stop() == 0  # what is left is sent before it ends
    assert collector.services == {"edge-rag"}
    spans = collector.of_request("traced")
    call = spans["Ask"]
    assert call.trace_id.hex() == TRACE
    assert call.parent_span_id.hex() == PARENT
    assert call.kind == Span.SPAN_KIND_SERVER
    assert attributes(call)["rpc.response.status_code"] == "OK"
    for stage, told in zip(("retriever", "reranker", "generator"), last.finished.stages, strict=True):
        span, noted = spans[stage], attributes(spans[stage])
        assert span.parent_span_id == call.span_id
        assert call.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= call.end_time_unix_nano
        assert noted["edge_rag.queue_seconds"] == pytest.approx(told.queue_seconds)
        assert noted["edge_rag.compute_seconds"] == pytest.approx(told.compute_seconds)
    noted = attributes(spans["generator"])
    assert noted["gen_ai.usage.input_tokens"] == last.finished.usage.prompt_tokens
    assert noted["gen_ai.usage.output_tokens"] == last.finished.usage.generated_tokens

    (failed,) = (s for s in collector.spans if attributes(s).get("edge_rag.request_id") == "refused")
    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert failed.status.message == ""
    (generator,) = (s for s in collector.spans if s.parent_span_id == failed.span_id and s.name == "generator")
    assert attributes(generator)["error.type"] == "RequestTooLarge"

    (stored,) = (span for span in collector.spans if span.name == "ingest")
    assert attributes(stored)["edge_rag.outcome"] == "added"
    (ingested,) = (span for span in collector.spans if span.name == "Ingest")
    assert stored.parent_span_id == ingested.span_id
    assert ingested.parent_span_id == b""


def test_a_collector_that_is_not_there_disturbs_nobody(start: Callable[..., RunningDaemon], free_port: int) -> None:
    running = start(config=f'[traces]\nendpoint = "http://127.0.0.1:{free_port}/v1/traces"\n[log]\nformat = "json"\n')
    ingest(running.address, VALVE)
    assert ask(running.address, "untold")[-1].HasField("finished")
    assert running.stop() == 0
    lines = running.log.read_text().splitlines()
    assert all(line.startswith("{") for line in lines), lines
    assert any('"library": "opentelemetry.' in line for line in lines)
