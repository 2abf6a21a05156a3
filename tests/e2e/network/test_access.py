import json
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf import field_mask_pb2

from edge_rag.api.v1 import (
    access_pb2,
    access_pb2_grpc,
    admin_pb2,
    admin_pb2_grpc,
    collections_pb2,
    collections_pb2_grpc,
    documents_pb2,
    documents_pb2_grpc,
    rag_pb2,
    rag_pb2_grpc,
)
from edge_rag.cli.main import main
from tests.e2e.support.running_daemon import RunningDaemon
from tests.e2e.support.secured_daemon import (
    ANYBODY,
    BORROW,
    METHODS,
    OPERATE,
    READ,
    STRANGERS,
    WRITE,
    Box,
    ask,
    call,
    edge_rag,
    refused,
    token,
)


def test_for_each_call_it_is_said_whom_it_is_for() -> None:
    assert METHODS == READ | WRITE | OPERATE | BORROW | ANYBODY | STRANGERS


@pytest.mark.parametrize(("service", "method"), sorted(METHODS))
def test_each_call_is_for_the_roles_it_is_for_and_no_others(box: Box, service: str, method: str) -> None:
    allowed = {"admin"}
    if (service, method) in READ | ANYBODY | STRANGERS:
        allowed |= {"reader", "reader-a"}
    if (service, method) in WRITE | ANYBODY | STRANGERS:
        allowed |= {"writer-a"}
    if (service, method) in BORROW | ANYBODY | STRANGERS:
        allowed |= {"peer"}
    for name in ("admin", "reader", "reader-a", "writer-a", "peer"):
        with box.channel(name) as channel:
            code = call(channel, service, method)
        denied = code is grpc.StatusCode.PERMISSION_DENIED
        assert denied == (name not in allowed), f"{name}: {code}"
    for stranger in (None, "erag_0123456789abcdef_" + "A" * 43, "nonsense"):
        with box.channel(token=stranger) as channel:
            # An empty request has no code, which is a field that is missing, and not an identity.
            turned_away = grpc.StatusCode.INVALID_ARGUMENT
            if (service, method) not in STRANGERS:
                turned_away = grpc.StatusCode.UNAUTHENTICATED
            assert call(channel, service, method) is turned_away


@pytest.mark.smoke
def test_a_reader_of_one_collection_gets_its_answers(box: Box) -> None:
    with box.channel("reader-a") as channel:
        events = ask(channel, "When does the galley open?", "a")
    assert "six in the morning" in "".join(event.text.text for event in events)


def test_a_writer_of_one_collection_cannot_write_into_another(box: Box) -> None:
    with box.channel("writer-a") as channel:
        documents = documents_pb2_grpc.DocumentsStub(channel)

        def parts(collection: str) -> Iterator[documents_pb2.IngestRequest]:
            header = documents_pb2.IngestRequest.Header(collection=collection, name="note.txt")
            yield documents_pb2.IngestRequest(header=header)
            yield documents_pb2.IngestRequest(content=b"A note about the bilge pump.")

        for collection in ("b", "new"):
            error = refused(lambda place=collection: documents.Ingest(parts(place)))  # type: ignore[misc]
            assert error.code() is grpc.StatusCode.NOT_FOUND
            error = refused(lambda place=collection: list(documents.StartIngest(parts(place))))  # type: ignore[misc]
            assert error.code() is grpc.StatusCode.NOT_FOUND
        assert documents.Ingest(parts("a")).outcomes[0].status == documents_pb2.INGEST_STATUS_ADDED
    with box.channel("admin") as channel:
        listed = documents_pb2_grpc.DocumentsStub(channel).List(documents_pb2.ListDocumentsRequest(collection="b"))
    assert [document.name for document in listed.documents] == ["reactor.txt"]


def test_a_writer_decides_neither_what_leaves_the_host_nor_which_collections_there_are(box: Box) -> None:
    with box.channel("admin") as admin, box.channel("writer-a") as channel:
        there = collections_pb2_grpc.CollectionsStub(admin)
        before = there.Get(collections_pb2.GetCollectionRequest(name="a"))
        collections = collections_pb2_grpc.CollectionsStub(channel)
        settings = collections_pb2.CollectionSettings(offload=collections_pb2.OFFLOAD_RULE_ALLOWED)
        changed = collections_pb2.UpdateCollectionRequest(
            name="a", settings=settings, update_mask=field_mask_pb2.FieldMask(paths=["offload"])
        )
        for error in (
            refused(lambda: collections.Update(changed)),
            refused(lambda: collections.Create(collections_pb2.CreateCollectionRequest(name="a", settings=settings))),
            refused(lambda: collections.Delete(collections_pb2.DeleteCollectionRequest(name="a"))),
        ):
            assert error.code() is grpc.StatusCode.PERMISSION_DENIED
            assert "needs the role admin" in str(error.details())
        assert there.Get(collections_pb2.GetCollectionRequest(name="a")) == before


def test_who_calls_is_told_who_it_is(box: Box) -> None:
    with box.channel("batch") as channel:
        who = access_pb2_grpc.AccessStub(channel).WhoAmI(access_pb2.WhoAmIRequest())
    assert (who.name, list(who.roles), who.every_collection) == ("batch", [access_pb2.ROLE_READER], False)
    assert (list(who.collections), who.priority_max) == (["a"], rag_pb2.PRIORITY_BATCH)


def test_no_request_is_more_urgent_than_its_caller_may_be(box: Box) -> None:
    request = rag_pb2.AskRequest(
        question="When does the galley open?",
        collection="a",
        priority=rag_pb2.PRIORITY_INTERACTIVE,
        request_id="urgent",
    )
    with box.channel("batch") as channel:
        list(rag_pb2_grpc.RagStub(channel).Ask(request))
    with box.channel("admin") as channel:
        about = admin_pb2.ListAuditEventsRequest(request_id="urgent")
        decisions = [reply.event for reply in admin_pb2_grpc.AdminStub(channel).ListAuditEvents(about)]
    assert {decision.client for decision in decisions} == {"batch"}
    assert {decision.priority for decision in decisions} == {rag_pb2.PRIORITY_BATCH}


@pytest.mark.smoke
def test_a_quota_is_refused_with_the_time_to_come_back(box: Box) -> None:
    with box.channel("rare") as channel:
        rag = rag_pb2_grpc.RagStub(channel)
        for _ in range(2):
            rag.Search(rag_pb2.SearchRequest(query="galley", collection="a"))
        error = refused(lambda: rag.Search(rag_pb2.SearchRequest(query="galley", collection="a")))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "2 requests a minute" in str(error.details())
    pushback = {str(one[0]): one[1] for one in error.trailing_metadata()}["grpc-retry-pushback-ms"]  # type: ignore[index]
    assert 0 < int(pushback) <= 30_000
    with box.channel("reader") as channel:
        rag_pb2_grpc.RagStub(channel).Search(rag_pb2.SearchRequest(query="galley", collection="a"))


@pytest.mark.smoke
def test_a_revoked_token_is_refused_at_the_next_call(box: Box) -> None:
    text = token("guest", box.data)
    with box.channel(token=text) as channel:
        access = access_pb2_grpc.AccessStub(channel)
        assert access.WhoAmI(access_pb2.WhoAmIRequest()).name == "guest"
        edge_rag("token", "revoke", "guest", data=box.data)
        assert refused(lambda: access.WhoAmI(access_pb2.WhoAmIRequest())).code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_wrong_token_is_refused_alike_however_much_of_it_is_right(box: Box) -> None:
    right = box.tokens["reader"]
    nothing_right = "erag_" + "0" * 16 + "_" + "A" * 43
    key_right = right[: len("erag_") + 17] + "A" * 43
    all_but_one_right = right[:-1] + ("A" if right[-1] != "A" else "B")
    assert len({refused_text(box, text) for text in (nothing_right, key_right, all_but_one_right)}) == 1


def refused_text(box: Box, text: str) -> str:
    with box.channel(token=text) as channel:
        error = refused(lambda: access_pb2_grpc.AccessStub(channel).WhoAmI(access_pb2.WhoAmIRequest()))
    return str(error.details())


def test_nothing_is_served_without_tls_where_tls_is_asked_for(box: Box) -> None:
    with grpc.insecure_channel(box.running.address) as channel:
        error = refused(lambda: access_pb2_grpc.AccessStub(channel).WhoAmI(access_pb2.WhoAmIRequest(), timeout=10))
    assert error.code() is grpc.StatusCode.UNAVAILABLE


def test_a_new_certificate_is_served_without_a_restart(box: Box) -> None:
    import ssl

    host, _, port = box.running.address.rpartition(":")
    before = ssl.get_server_certificate((host, int(port)))
    edge_rag("tls", "init", "--host", "127.0.0.1", "--host", "box.lan", data=box.data)
    after = ssl.get_server_certificate((host, int(port)))
    assert before != after
    with box.channel("reader") as channel:
        assert access_pb2_grpc.AccessStub(channel).WhoAmI(access_pb2.WhoAmIRequest()).name == "reader"


def test_secrets_are_in_no_log(box: Box) -> None:
    log = box.running.log.read_text()
    assert "Persephone" not in log
    assert not any(text.split("_", 2)[2] in log for text in box.tokens.values())


def test_a_client_certificate_stands_for_the_token_of_its_name(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    edge_rag("tls", "init", "--host", "127.0.0.1", data=data)
    token("ward-3", data, "--collections", "a")
    for name in ("ward-3", "stranger"):
        edge_rag("tls", "client", name, "--directory", tmp_path / name, data=data)
    running = start(config="[tls]\nalways = true\nclient_certificates = true\n")
    authority = (data / "tls" / "ca.pem").read_bytes()

    def whoami(name: str | None) -> access_pb2.WhoAmIResponse:
        pair = (
            (None, None)
            if name is None
            else tuple((tmp_path / name / f"{name}.{e}").read_bytes() for e in ("key", "pem"))
        )
        credentials = grpc.ssl_channel_credentials(authority, *pair)
        with grpc.secure_channel(running.address, credentials) as channel:
            return access_pb2_grpc.AccessStub(channel).WhoAmI(access_pb2.WhoAmIRequest(), timeout=10)

    who = whoami("ward-3")
    assert (who.name, list(who.collections)) == ("ward-3", ["a"])
    assert refused(lambda: whoami("stranger")).code() is grpc.StatusCode.UNAUTHENTICATED
    assert refused(lambda: whoami(None)).code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("prepare", "mended_by"),
    [((), "edge-rag tls init"), (("tls",), "edge-rag token create")],
    ids=["no certificate", "no credentials"],
)
def test_a_daemon_that_would_be_open_to_the_network_does_not_start_and_says_how_to_mend_it(
    tmp_path: Path, prepare: tuple[str, ...], mended_by: str
) -> None:
    if "tls" in prepare:
        edge_rag("tls", "init", "--host", "127.0.0.1", data=tmp_path)
    result = CliRunner().invoke(main, ["serve", "--listen", "0.0.0.0:0", "--data-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert mended_by in result.stderr


@pytest.mark.smoke
def test_the_command_line_connects_once_and_is_known_from_then_on(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "reader.token").write_text(box.tokens["reader"] + "\n")
    arguments = ["connect", box.running.address, "--ca", str(box.data / "tls" / "ca.pem")]
    result = CliRunner().invoke(main, [*arguments, "--token-file", str(tmp_path / "reader.token"), "--json"])
    expected = {"server": box.running.address, "box": None, "name": "reader", "roles": ["reader"], "collections": None}
    assert json.loads(result.stdout) == expected
    search = ["search", "--server", box.running.address, "--collection", "a", "--json", "galley"]
    found = CliRunner().invoke(main, search)
    assert "six in the morning" in found.stdout, found.output
    assert (tmp_path / "edge-rag" / "servers.json").stat().st_mode & 0o777 == 0o600
    status = CliRunner().invoke(main, ["status", "--server", box.running.address])
    assert status.exit_code == 5
    assert "needs the role admin" in status.stderr
