"""Tokens that administrators make, change and revoke: rights, what is refused, and what the audit log says."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge_rag.access.tokens import TokenFile
from edge_rag.core.identity import Identity, Quota, Role, local_identity
from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.query import Priority
from edge_rag.errors import AccessError, ConfirmationNeeded, InvalidRequest, TokenExists, TokenNotFound
from edge_rag.service.admin import tokens
from edge_rag.service.admin.tokens import TokenSettings
from edge_rag.service.call import Call
from edge_rag.telemetry.audit_log import AuditLog

ADMIN = frozenset({Role.ADMIN})


class Box:
    """Tokens of a box, and the calls of administrators."""

    def __init__(self, folder: Path, has_certificate: bool = True) -> None:
        self.file = TokenFile(folder / "tokens.json")
        self.audit = AuditLog(100)
        self._has_certificate = has_certificate

    def call(self, identity: Identity) -> Call:
        authentication = SimpleNamespace(tokens=self.file, pairing=SimpleNamespace(server_identity=self._introduce))
        made: Any = SimpleNamespace(
            identity=identity,
            request_id=RequestId("one"),
            run=asyncio.to_thread,
            backend=SimpleNamespace(audit=self.audit),
            context=SimpleNamespace(authentication=authentication),
        )
        return cast(Call, made)

    def _introduce(self) -> None:
        if not self._has_certificate:
            raise AccessError("there is no certificate; make one with `edge-rag tls init`")

    def reasons(self) -> list[str]:
        entries = self.audit.entries().entries
        assert all(entry.event.kind is AuditEventKind.CHANGED for entry in entries)
        return [f"{entry.event.client}: {entry.event.reason}" for entry in entries]


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


async def test_a_new_token_opens_the_box_with_its_rights_and_its_secret_is_nowhere_else(
    box: Box, tmp_path: Path
) -> None:
    call = box.call(local_identity("ipv4:127.0.0.1"))
    expires = datetime.now(UTC) + timedelta(days=7)
    settings = TokenSettings(frozenset({Role.WRITER}), frozenset({"a"}), Priority.BATCH, 60, 20_000, 2, expires)
    info, secret = await tokens.create(call, "ward-3", settings)
    identity = Identity("ward-3", frozenset({Role.WRITER}), frozenset({"a"}), Priority.BATCH, Quota(60, 20_000, 2))
    assert box.file.identify(secret) == info.identity == identity
    assert (info.expires, info.is_expired, info.is_own) == (expires, False, False)
    listed = await tokens.list_all(call)
    assert (listed.tokens, listed.advice) == ((info,), "")
    assert box.reasons() == ["ipv4:127.0.0.1: token ward-3 was made with the roles writer"]
    hidden = secret.split("_", 2)[2]
    assert hidden not in (tmp_path / "tokens.json").read_text()
    assert hidden not in repr(info)


async def test_without_a_certificate_the_list_says_what_to_do_first(tmp_path: Path) -> None:
    listed = await tokens.list_all(Box(tmp_path, has_certificate=False).call(local_identity("here")))
    assert listed.tokens == ()
    assert "edge-rag tls init" in listed.advice


@pytest.mark.parametrize(
    ("name", "settings", "field"),
    [
        ("a name", TokenSettings(), "name"),
        ("", TokenSettings(), "name"),
        ("x", TokenSettings(roles=frozenset()), "roles"),
        ("x", TokenSettings(collections=frozenset()), "collections"),
        ("x", TokenSettings(collections=frozenset({"A b"})), "collections"),
        ("x", TokenSettings(requests_per_minute=0), "quota"),
        ("x", TokenSettings(tokens_per_minute=-1), "quota"),
        ("x", TokenSettings(expires=datetime(2020, 1, 1, tzinfo=UTC)), "expires"),
    ],
)
async def test_what_no_token_may_have_is_refused_and_nothing_is_made(
    box: Box, name: str, settings: TokenSettings, field: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        await tokens.create(box.call(local_identity("here")), name, settings)
    assert refusal.value.field == field
    assert box.file.tokens() == ()
    assert box.reasons() == []


async def test_a_name_has_one_token(box: Box) -> None:
    call = box.call(local_identity("here"))
    await tokens.create(call, "ward-3", TokenSettings())
    with pytest.raises(TokenExists, match="ward-3"):
        await tokens.create(call, "ward-3", TokenSettings())
    assert len(box.file.tokens()) == 1


async def test_a_changed_token_keeps_its_secret_and_what_was_not_changed(box: Box) -> None:
    call = box.call(local_identity("here"))
    info, secret = await tokens.create(call, "kiosk", TokenSettings(requests_per_minute=5, tokens_per_minute=9))
    changed = await tokens.update(
        call, info.key, {"requests_per_minute": None, "collections": frozenset({"a"})}, force=False
    )
    assert changed.identity == box.file.identify(secret)
    assert changed.identity.quota == Quota(None, 9, None)
    assert changed.identity.collections == frozenset({"a"})
    assert changed.identity.roles == info.identity.roles
    assert box.reasons()[-1] == "here: token kiosk was changed to the roles reader"
    with pytest.raises(InvalidRequest):
        await tokens.update(call, info.key, {"expires": datetime(2020, 1, 1, tzinfo=UTC)}, force=False)
    assert box.file.identify(secret) == changed.identity


async def test_a_revoked_token_opens_nothing(box: Box) -> None:
    call = box.call(local_identity("here"))
    info, secret = await tokens.create(call, "guest", TokenSettings())
    assert (await tokens.revoke(call, info.key, force=False)).identity.name == "guest"
    assert box.file.identify(secret) is None
    for act in (tokens.revoke(call, info.key, force=False), tokens.update(call, info.key, {}, force=False)):
        with pytest.raises(TokenNotFound):
            await act
    assert box.reasons()[-1] == "here: token guest was revoked"


async def test_an_administrator_does_not_shut_itself_out_unless_it_insists(box: Box) -> None:
    made, secret = await tokens.create(box.call(local_identity("here")), "boss", TokenSettings(ADMIN))
    own = box.call(made.identity)
    assert [each.is_own for each in (await tokens.list_all(own)).tokens] == [True]
    readers = {"roles": frozenset({Role.READER})}
    for act in (tokens.revoke(own, made.key, force=False), tokens.update(own, made.key, readers, force=False)):
        with pytest.raises(ConfirmationNeeded, match="force"):
            await act
    assert box.file.identify(secret) == made.identity
    await tokens.update(own, made.key, {"requests_per_minute": 100}, force=False)
    await tokens.update(own, made.key, readers, force=True)
    await tokens.revoke(own, made.key, force=True)
    assert box.file.identify(secret) is None
