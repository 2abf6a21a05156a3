from tests.unit.cli.conftest import no_known_servers, scripted

__all__ = ["no_known_servers", "scripted"]
