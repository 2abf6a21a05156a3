from pathlib import Path

import pytest

from edge_rag.bootstrap.device import inspect_device
from edge_rag.bootstrap.memory_planner import MemoryPlanner, parsing_bytes
from edge_rag.config.settings import load_settings
from edge_rag.core.monitoring.resources import MemoryItem
from edge_rag.device.memory_plan import MemoryPlan
from edge_rag.device.profile import builtin_profiles, choose
from edge_rag.model_store.store import RoleFolders
from tests.unit.device.recorded_boards import BOARDS, recorded

MODELS = Path(__file__).parents[3] / "models"
FOLDERS = RoleFolders(MODELS / "minilm-l6", None, Path(__file__).parents[2] / "fixtures" / "quoter")
DEFAULTS = RoleFolders(MODELS / "multilingual-e5-small", None, None)


@pytest.mark.parametrize("folders", [DEFAULTS, FOLDERS], ids=["defaults", "small models"])
@pytest.mark.parametrize("board", sorted(path.stem for path in BOARDS.glob("*.toml")))
def test_models_of_this_repository_fit_every_recorded_board(board: str, folders: RoleFolders, tmp_path: Path) -> None:
    facts = recorded(board, tmp_path / "board")
    profile = choose("auto", facts, builtin_profiles()).profile
    settings = load_settings(None, {"data_directory": tmp_path})
    planner = MemoryPlanner(settings, profile, facts, folders)
    plan = planner.plan(folders.generator)
    assert plan.planned_bytes + plan.spare_bytes == plan.budget_bytes
    assert plan.planned_bytes <= facts.memory.usable_bytes
    assert plan.shrink_steps == 0
    assert plan.sizes.slots == profile.max_slots
    assert parsing_bytes(plan, planner.parsers) >= profile.reserve_bytes // 2


def planned(
    tmp_path: Path, name: str, folders: RoleFolders = FOLDERS, profile: str = "auto", **settings: object
) -> list[MemoryItem]:
    """Items of a name in the plan of a Raspberry Pi 5."""
    facts = recorded("raspberry-pi-5-8g", tmp_path / "board")
    chosen = choose(profile, facts, builtin_profiles()).profile
    loaded = load_settings(None, {"data_directory": tmp_path, **settings})
    plan = MemoryPlanner(loaded, chosen, facts, folders).plan(folders.generator)
    return [item for item in plan.items if item.name == name]


def test_indexes_in_the_data_directory_are_counted(tmp_path: Path) -> None:
    (before,) = planned(tmp_path, "indexes")
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "1.faiss").write_bytes(bytes(1000))
    assert [item.bytes for item in planned(tmp_path, "indexes")] == [before.bytes + 1000]


def test_token_vectors_are_planned_where_they_are_kept(tmp_path: Path) -> None:
    def kept(mib: int | None) -> list[str]:
        items = planned(tmp_path, "token vectors", DEFAULTS, retriever={"token_vectors_mib": mib})
        return [item.detail for item in items]

    assert kept(0) == []
    assert kept(None)
    (detail,) = kept(300)
    assert "300 MiB" in detail


def test_memory_of_a_running_daemon_counts_as_available(tmp_path: Path) -> None:
    settings = load_settings(None, {"data_directory": tmp_path})
    alone, beside = inspect_device(settings), inspect_device(settings, held_bytes=1 << 40)
    assert isinstance(alone.plan, MemoryPlan)
    assert isinstance(beside.plan, MemoryPlan)
    assert beside.plan.budget_bytes - alone.plan.budget_bytes > 1 << 39


def test_the_graphs_of_an_npu_are_counted_where_the_profile_puts_encoders_there(tmp_path: Path) -> None:
    weights = (MODELS / "minilm-l6" / "model.onnx").stat().st_size
    assert planned(tmp_path, "npu", profile="cpu-arm64") == []
    (taken,) = planned(tmp_path, "npu", profile="qnn-htp")
    assert taken.bytes > 4 * weights
