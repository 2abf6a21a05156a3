"""What of the settings can change while the daemon runs."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from edge_rag.config.settings import Settings


def adopted(present: Settings, wanted: Settings) -> Settings:
    """Returns the present settings with those of the wanted ones that can change while running."""
    limits, tls = wanted.limits, wanted.tls
    return present.model_copy(
        update={
            "log": wanted.log,
            "limits": present.limits.model_copy(
                update={
                    "question_characters": limits.question_characters,
                    "request_seconds": limits.request_seconds,
                    "long_call_seconds": limits.long_call_seconds,
                }
            ),
            "tls": present.tls.model_copy(
                update={
                    "certificate": tls.certificate,
                    "key": tls.key,
                    "client_authority": tls.client_authority,
                    "authority": tls.authority,
                }
            ),
            "access": wanted.access,
            "generator": present.generator.model_copy(update={"mode": wanted.generator.mode}),
            "reranker": present.reranker.model_copy(update={"passages": wanted.reranker.passages}),
        }
    )


def differing(one: Settings, other: Settings) -> tuple[str, ...]:
    """Returns the keys whose values differ, in the order in which they are declared: ``limits.request_seconds``."""
    return tuple(_differing(one, other))


def _differing(one: BaseModel, other: BaseModel, prefix: str = "") -> Iterator[str]:
    for name in type(one).model_fields:
        mine, theirs = getattr(one, name), getattr(other, name)
        if isinstance(mine, BaseModel) and isinstance(theirs, BaseModel):
            yield from _differing(mine, theirs, f"{prefix}{name}.")
        elif mine != theirs:
            yield f"{prefix}{name}"
