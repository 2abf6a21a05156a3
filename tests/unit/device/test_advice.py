from dataclasses import replace
from pathlib import Path

import pytest

from edge_rag.core.placement import ModelStage, Provider, ProviderDevice
from edge_rag.device.advice import advise
from edge_rag.device.facts import DeviceFacts, ThermalZone
from edge_rag.device.memory_plan import BatchSizes, MemoryPlan
from edge_rag.device.placing import expected_provider, obstacles
from edge_rag.device.probe import read_facts
from edge_rag.device.profile import builtin_profiles, choose
from tests.unit.device.recorded_boards import recorded


def advice(facts: DeviceFacts, plan: MemoryPlan | None = None) -> tuple[str, ...]:
    return advise(facts, choose("auto", facts, builtin_profiles()).profile, plan)


@pytest.mark.parametrize(
    ("board", "advised"),
    [
        ("pc-nvidia-no-driver", "an NVIDIA card at 0000:01:00.0 without its driver: install it, and onnxruntime-gpu"),
        ("jetson-orin-nano-4g", "the GPU is not used: install onnxruntime-gpu instead of onnxruntime"),
        ("qcs6490-rb3-gen2", "the NPU is not used: install onnxruntime-qnn"),
        ("intel-core-ultra", "the NPU is not used: install onnxruntime-ep-openvino"),
        ("intel-n100", "the processor's GPU is not used: install onnxruntime-ep-openvino"),
        ("raspberry-pi-4-8g", "no dot products of integers"),
        ("jetson-orin-nano-8g", "the power mode is 25W"),
        ("container-1g", "the process may run on 16 of 64 cores: widen its affinity"),
        ("container-1g", "a cgroup gives time for 2 of 16 cores: raise cpu.max"),
        ("container-1g", "pod7.slice/memory.max leaves 768 MiB"),
    ],
)
def test_advice_names_what_would_make_a_board_faster(board: str, advised: str, tmp_path: Path) -> None:
    assert any(advised in line for line in advice(recorded(board, tmp_path)))


def test_a_fully_equipped_board_gets_no_advice(tmp_path: Path) -> None:
    assert advice(recorded("pc-nvidia", tmp_path)) == ()


def test_the_governor_powersave_is_advised_unless_the_driver_raises_the_clock(tmp_path: Path) -> None:
    facts = recorded("intel-n100-openvino", tmp_path)
    assert any("governor is powersave" in line for line in advice(facts))
    dynamic = replace(facts, processor=replace(facts.processor, frequency_driver="intel_pstate"))
    assert advice(dynamic) == ()


def test_swap_on_a_memory_card_heat_and_short_memory_are_advised(tmp_path: Path) -> None:
    facts = recorded("raspberry-pi-5-8g", tmp_path)
    facts = replace(
        facts,
        memory=replace(facts.memory, swap_devices=("/dev/mmcblk0p3",)),
        thermal=(ThermalZone("cpu-thermal", 77.0),),
    )
    plan = MemoryPlan(1, (), 64, BatchSizes(2, 64, 1, 0), 1, 0)
    assert [line.split(":")[0] for line in advice(facts, plan)] == [
        "memory is short",
        "swap lies on /dev/mmcblk0p3, a memory card, which is slow and wears out",
        "cpu-thermal has 77 degrees, it slows down at 78",
    ]


def test_the_cpu_has_no_obstacles_and_other_providers_list_theirs(tmp_path: Path) -> None:
    facts = recorded("virtual-machine", tmp_path)
    assert obstacles(Provider.CPU, facts) == ()
    assert obstacles(Provider.TENSORRT, facts) == (
        "onnxruntime-gpu is not installed",
        "there is no nvidia-gpu or tegra-gpu with its driver",
        "libcudart and libnvinfer are not found",
    )
    assert obstacles(Provider.QNN, facts) == ("onnxruntime-qnn is not installed",)  # it brings a simulator
    phone = recorded("rk3588-rock-5b", tmp_path / "other")
    assert obstacles(Provider.QNN, phone) == (
        "onnxruntime-qnn is not installed",
        "there is no qualcomm-npu with its driver",
    )


def test_libraries_of_another_cuda_version_are_an_obstacle(tmp_path: Path) -> None:
    facts = recorded("pc-nvidia-old-cuda", tmp_path)
    assert obstacles(Provider.CUDA, facts) == ("CUDA 12.6.68 is there, this ONNX Runtime was built for 13.0",)
    wanted = choose("auto", facts, builtin_profiles()).profile.stages[ModelStage.GENERATOR]
    assert expected_provider(ModelStage.GENERATOR, wanted, facts)[0] is Provider.CPU


def test_a_card_whose_device_file_is_hidden_is_an_obstacle(tmp_path: Path) -> None:
    recorded("pc-nvidia", tmp_path)
    (tmp_path / "dev" / "nvidia0").unlink()
    facts = read_facts(tmp_path, "x86_64", None, {"onnxruntime-gpu": "1.31.1"}, (ProviderDevice(Provider.CUDA, "gpu"),))
    assert choose("auto", facts, builtin_profiles()).profile.name == "cuda"
    assert obstacles(Provider.CUDA, facts) == (
        "/dev/nvidia0 cannot be seen from here (for a service, see systemd/drop-ins)",
    )


def test_the_expected_provider_is_the_first_without_obstacles(tmp_path: Path) -> None:
    thor = recorded("jetson-agx-thor", tmp_path)
    embedder = choose("auto", thor, builtin_profiles()).profile.stages[ModelStage.EMBEDDER]
    assert expected_provider(ModelStage.EMBEDDER, embedder, thor) == (
        Provider.CUDA,
        "tensorrt: libnvinfer is not found",
    )
    assert expected_provider(ModelStage.EMBEDDER, replace(embedder, providers=embedder.providers[:1]), thor)[0] is None
