from tests.unit.discovery.conftest import machines

__all__ = ["machines"]
