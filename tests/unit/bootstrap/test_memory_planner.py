from pathlib import Path

import pytest

from edge_rag.bootstrap.device import inspect_device
from edge_rag.bootstrap.memory_planner import MemoryPlanner, parsing_bytes
from edge_rag.config.settings import load_settings
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


def test_indexes_in_the_data_directory_are_counted(tmp_path: Path) -> None:
    facts = recorded("raspberry-pi-5-8g", tmp_path / "board")
    profile = choose("auto", facts, builtin_profiles()).profile
    settings = load_settings(None, {"data_directory": tmp_path})

    def indexes() -> int:
        plan = MemoryPlanner(settings, profile, facts, FOLDERS).plan(FOLDERS.generator)
        return next(item.bytes for item in plan.items if item.name == "indexes")

    before = indexes()
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "1.faiss").write_bytes(bytes(1000))
    assert indexes() == before + 1000


def test_token_vectors_are_planned_where_they_are_kept(tmp_path: Path) -> None:
    facts = recorded("raspberry-pi-5-8g", tmp_path / "board")
    profile = choose("auto", facts, builtin_profiles()).profile

    def planned(mib: int | None, folders: RoleFolders) -> list[str]:
        settings = load_settings(None, {"data_directory": tmp_path, "retriever": {"token_vectors_mib": mib}})
        plan = MemoryPlanner(settings, profile, facts, folders).plan(folders.generator)
        return [item.detail for item in plan.items if item.name == "token vectors"]

    assert planned(0, DEFAULTS) == []
    assert planned(None, DEFAULTS)
    (detail,) = planned(300, DEFAULTS)
    assert "300 MiB" in detail


def test_memory_of_a_running_daemon_counts_as_available(tmp_path: Path) -> None:
    settings = load_settings(None, {"data_directory": tmp_path})
    alone, beside = inspect_device(settings), inspect_device(settings, held_bytes=1 << 40)
    assert isinstance(alone.plan, MemoryPlan)
    assert isinstance(beside.plan, MemoryPlan)
    assert beside.plan.budget_bytes - alone.plan.budget_bytes > 1 << 39


def test_the_graphs_of_an_npu_are_counted_where_the_profile_puts_encoders_there(tmp_path: Path) -> None:
    facts = recorded("raspberry-pi-5-8g", tmp_path / "board")
    settings = load_settings(None, {"data_directory": tmp_path})

    def npu(name: str) -> list[int]:
        profile = choose(name, facts, builtin_profiles()).profile
        plan = MemoryPlanner(settings, profile, facts, FOLDERS).plan(FOLDERS.generator)
        return [item.bytes for item in plan.items if item.name == "npu"]

    weights = (MODELS / "minilm-l6" / "model.onnx").stat().st_size
    assert npu("cpu-arm64") == []
    (taken,) = npu("qnn-htp")
    assert taken > 4 * weights
