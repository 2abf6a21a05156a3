"""Renders a model's chat template once, in a process with limits.

A template is a program of the model's author: it can loop for ever or make a text of gigabytes. It never sees a
question: it is rendered around placeholders when a model is added or opened, and the daemon uses the result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NoReturn

import jinja2
import jinja2.debug  # imported by the first error otherwise, when no file can be opened
from jinja2.sandbox import ImmutableSandboxedEnvironment

from edge_rag.core.limits.limited_process import LimitedProcess, ProcessFailure, ProcessLimits
from edge_rag.errors import ModelFolderInvalid

SYSTEM: Final = "\ue000system\ue001"
USER: Final = "\ue000user\ue001"
"""Placeholders of the system's and the user's message; private-use characters, which no template has."""


def turn_slots(turns: int) -> tuple[str, ...]:
    return tuple(
        (USER if not number else f"\ue000user{number}\ue001") if number % 2 == 0 else f"\ue000assistant{number}\ue001"
        for number in range(turns)
    )


LARGEST_TEMPLATE: Final = 1 << 18
"""Most characters of a template; published ones have up to 30,000."""

LARGEST_PROMPT: Final = 1 << 16
"""Most bytes that a template may put around the messages."""

RENDER_LIMITS: Final = ProcessLimits(
    memory_bytes=128 << 20, cpu_seconds=2, wall_seconds=60.0, answer_bytes=LARGEST_PROMPT + 1
)
"""Limits of rendering."""

_HANDLER: Final = "edge_rag.generator.prompt.chat_template:render"
_RENDERED, _REFUSED = b"r", b"e"
_LONGEST_REASON: Final = 500
_ERRORS: Final = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    AssertionError,
    SyntaxError,
    OSError,
)
"""Errors of Jinja and of expressions in a template."""

_REMEDY: Final = "; such a model cannot be used"
_FAILURES: Final[Mapping[ProcessFailure, str]] = {
    ProcessFailure.TIME: f"rendering it takes more than {RENDER_LIMITS.cpu_seconds} s of processor time",
    ProcessFailure.MEMORY: f"rendering it takes more than {RENDER_LIMITS.memory_bytes >> 20} MiB",
    ProcessFailure.SIZE: f"it renders to more than {LARGEST_PROMPT:,} bytes",
}


def read_chat_template(folder: Path) -> tuple[str, Mapping[str, str]]:
    """Reads ``chat_template.jinja``, or the template in ``tokenizer_config.json``, which is optional otherwise.

    Raises:
        ModelFolderInvalid: There is no template, or a file cannot be read.
    """
    try:
        settings_file, template_file = folder / "tokenizer_config.json", folder / "chat_template.jinja"
        settings = json.loads(settings_file.read_text("utf-8")) if settings_file.exists() else {}
        template = template_file.read_text("utf-8") if template_file.exists() else settings.get("chat_template")
    except (OSError, ValueError) as error:
        raise ModelFolderInvalid(f"{folder}: {error}") from error
    if not isinstance(template, str):
        raise ModelFolderInvalid(f"{folder}: no chat template in chat_template.jinja or tokenizer_config.json")
    return template, _token_variables(settings)


def render_chat_template(template: str, variables: Mapping[str, str], system: bool = True, turns: int = 1) -> str:
    """Renders a template around ``SYSTEM`` and ``turn_slots``. Templates rendered before are remembered.

    Raises:
        ModelFolderInvalid: It has errors, refuses these messages, or exceeds a limit; says which.
    """
    if len(template) > LARGEST_TEMPLATE:
        raise ModelFolderInvalid(
            f"chat template: has {len(template):,} characters, at most {LARGEST_TEMPLATE:,} are allowed"
        )
    return _rendered(template, tuple(sorted(variables.items())), system, turns)


@lru_cache(maxsize=16)
def _rendered(template: str, variables: tuple[tuple[str, str], ...], system: bool, turns: int) -> str:
    process = LimitedProcess(_HANDLER, RENDER_LIMITS)
    try:
        answer = process.call(json.dumps([template, dict(variables), system, turns]).encode()).body
    finally:
        process.close()
    if isinstance(answer, ProcessFailure):
        reason = _FAILURES.get(answer, answer.value)
        raise ModelFolderInvalid(f"chat template: {reason}{_REMEDY}")
    text = answer[1:].decode("utf-8", "replace")
    if answer[:1] != _RENDERED:
        raise ModelFolderInvalid(f"chat template: {text}")
    return text


def render(message: bytes) -> bytes:
    """Renders a template, in the process with limits."""
    template, variables, system, turns = json.loads(message)
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    messages = [{"role": "system", "content": SYSTEM}] * system
    messages += [
        {"role": "assistant" if number % 2 else "user", "content": slot}
        for number, slot in enumerate(turn_slots(turns))
    ]
    try:
        text = environment.from_string(template).render(
            messages=messages, add_generation_prompt=True, enable_thinking=False, **variables
        )
    except _ERRORS as error:
        return _REFUSED + str(error)[:_LONGEST_REASON].encode("utf-8", "replace")
    return _RENDERED + text.encode("utf-8", "replace")


def _refuse(message: object) -> NoReturn:
    raise jinja2.TemplateError(str(message)[:_LONGEST_REASON])


def _token_variables(settings: Mapping[str, Any]) -> dict[str, str]:
    variables = {}
    for name in ("bos_token", "eos_token"):
        token = settings.get(name)
        if isinstance(token, Mapping):
            token = token.get("content")
        variables[name] = token if isinstance(token, str) else ""
    return variables


render(json.dumps(["{% for message in messages %}{{ message['content'] | trim }}{% endfor %}", {}, True, 1]).encode())
