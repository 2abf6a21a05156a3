from prometheus_client import CollectorRegistry

from edge_rag.core.answer import Usage
from edge_rag.core.monitoring.metrics import ClientUsage, RequestReport
from edge_rag.telemetry.usage import UsageMeter


def report(client: str, prompt: int = 100, cached: int = 40, generated: int = 7, slot_s: float = 1.5) -> RequestReport:
    return RequestReport(
        client=client,
        usage=Usage(prompt, cached, generated, forced_tokens=0, model_steps=3),
        queue_s=0.5,
        slot_s=slot_s,
        first_token_s=1.0,
        last_token_s=1.6,
        completed=True,
    )


def test_a_clients_requests_are_summed_up() -> None:
    ledger = UsageMeter()
    ledger.ended(report("alice"))
    ledger.ended(report("alice", prompt=10, cached=0, generated=1, slot_s=0.25))
    ledger.refused("alice")
    ledger.ended(report("bob"))
    assert ledger.read() == (
        ClientUsage("alice", 2, 1, 110, 40, 8, 1.75),
        ClientUsage("bob", 1, 0, 100, 40, 7, 1.5),
    )


def test_clients_beyond_the_bound_are_summed_up_together_and_nothing_is_lost() -> None:
    ledger = UsageMeter(max_clients=2)
    for number in range(50):
        ledger.ended(report(f"client-{number}"))
        ledger.refused(f"client-{number}")
    ledger.ended(report("client-0"))
    kept = ledger.read()
    assert [usage.client for usage in kept] == ["client-0", "client-1", None]
    assert [usage.requests for usage in kept] == [2, 1, 48]
    assert sum(usage.refused for usage in kept) == 50
    assert kept[-1].generated_tokens == 48 * 7


def test_usage_is_served_as_metrics_by_client() -> None:
    registry = CollectorRegistry()
    ledger = UsageMeter(max_clients=1)
    registry.register(ledger)
    ledger.ended(report("alice"))
    ledger.refused("alice")
    for client in ("bob", "carol"):
        ledger.ended(report(client))

    def value(name: str, client: str) -> float | None:
        return registry.get_sample_value(f"edge_rag_client_{name}_total", {"client": client})

    names = (
        "requests", "refused_requests", "prompt_tokens", "cached_prompt_tokens", "generation_tokens", "slot_seconds"
    )  # fmt: skip
    assert [value(name, "alice") for name in names] == [1, 1, 100, 40, 7, 1.5]
    assert [value(name, "other") for name in names] == [2, 0, 200, 80, 14, 3.0]
    assert value("requests", "bob") is None
