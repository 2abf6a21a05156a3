import grpc
import pytest

from edge_rag import errors
from edge_rag.server.grpc.call import STATUS, error_status


def every_error(root: type[errors.EdgeRagError]) -> list[type[errors.EdgeRagError]]:
    return [root, *(below for child in root.__subclasses__() for below in every_error(child))]


def test_every_error_has_a_status_and_the_table_names_nothing_else() -> None:
    assert set(STATUS) == set(every_error(errors.EdgeRagError))


def test_no_error_maps_to_success() -> None:
    assert grpc.StatusCode.OK not in STATUS.values()


def test_the_error_tree_in_the_module_names_every_class() -> None:
    assert errors.__doc__ is not None
    for error in every_error(errors.EdgeRagError):
        assert error.__name__ in errors.__doc__


@pytest.mark.parametrize("seconds", [0.05, 1.0, 12.3456])
def test_a_full_queue_sends_its_retry_delay_in_milliseconds(seconds: float) -> None:
    assert error_status(errors.Overloaded("retriever", seconds))[2] == (
        ("grpc-retry-pushback-ms", str(round(seconds * 1000))),
    )


def test_other_errors_carry_no_pushback() -> None:
    assert error_status(errors.NotReady("starting"))[2] == ()
