import platform
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.core.placement import Provider
from edge_rag.device.facts import CgroupLimit
from edge_rag.device.hardware import memory_limits
from edge_rag.device.probe import probe, read_facts
from edge_rag.device.profile import builtin_profiles, choose
from edge_rag.runtime.session.providers.cuda import NVIDIA_GPU, TEGRA_GPU
from tests.support.examples import examples
from tests.unit.device.recorded_boards import recorded
from tests.unit.throttle.boards import write_tree

MIB = 1 << 20


def test_release_power_mode_libraries_and_temperatures_of_a_jetson_are_read(tmp_path: Path) -> None:
    facts = recorded("jetson-orin-nano-8g", tmp_path)
    assert facts.board.model == "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super"
    assert facts.board.compatible == ("nvidia,p3768-0000+p3767-0005-super", "nvidia,p3767-0005", "nvidia,tegra234")
    assert (facts.board.jetson_release, facts.board.power_mode) == ("36.4", "25W")
    assert facts.drivers.accelerators == {TEGRA_GPU}
    assert facts.drivers.libraries == {
        "libcuda": "1.1",
        "libcudart": "12.6.68",
        "libcudnn": "9.3.0",
        "libnvinfer": "10.3.0",
    }
    assert [(zone.name, zone.celsius, zone.passive_celsius, zone.critical_celsius) for zone in facts.thermal] == [
        ("cpu-thermal", 51.218, 99.0, 104.5),
        ("gpu-thermal", 49.906, 99.0, None),
        ("tj-thermal", 51.218, None, None),
    ]
    assert facts.memory.swap_devices == ("/dev/zram0",)
    assert facts.providers == {Provider.CPU, Provider.CUDA, Provider.TENSORRT}


def test_an_integrated_gpu_is_not_taken_for_a_card(tmp_path: Path) -> None:
    assert recorded("jetson-agx-thor", tmp_path).drivers.accelerators == {TEGRA_GPU}


def test_the_version_of_a_driver_is_read(tmp_path: Path) -> None:
    drivers = recorded("pc-nvidia", tmp_path).drivers
    assert drivers.driver == "580.95.05"
    assert drivers.gpus == ("NVIDIA RTX A2000 12GB",)
    assert drivers.accelerators == {NVIDIA_GPU}


def test_cores_of_several_kinds_form_clusters_and_the_fast_ones_are_big(tmp_path: Path) -> None:
    processor = recorded("qcs8550-aim300", tmp_path).processor
    assert [core.cluster for core in processor.cores] == [2, 2, 2, 1, 1, 1, 1, 0]
    assert [core.number for core in processor.big] == [3, 4, 5, 6, 7]


def test_only_cores_this_process_may_run_on_are_counted(tmp_path: Path) -> None:
    processor = recorded("container-1g", tmp_path).processor
    assert (len(processor.cores), len(processor.usable), processor.cpu_quota) == (64, 16, 2.0)


def test_where_the_process_may_only_use_slow_cores_these_are_the_big_ones(tmp_path: Path) -> None:
    recorded("rk3588-rock-5b", tmp_path)
    facts = read_facts(tmp_path, "aarch64", frozenset({0, 1}), {}, ())
    assert [core.number for core in facts.processor.big] == [0, 1]


def test_every_limit_above_a_nested_cgroup_counts_and_page_cache_does_not(tmp_path: Path) -> None:
    memory = recorded("container-1g", tmp_path).memory
    pod = "kubepods.slice/pod7.slice"
    assert memory.limits == (
        CgroupLimit(f"{pod}/cri-3f.scope/memory.max", 1024 * MIB, 60 * MIB),
        CgroupLimit(f"{pod}/memory.max", 1280 * MIB, 512 * MIB, 128 * MIB),
    )
    assert memory.usable_bytes == 768 * MIB
    assert memory.budget_bytes == 896 * MIB
    assert memory.board_bytes == 1024 * MIB


def test_version_1_of_cgroups_is_read_inside_a_container(tmp_path: Path) -> None:
    facts = recorded("container-cgroup-v1", tmp_path)
    assert facts.memory.limits == (CgroupLimit("memory.limit_in_bytes", 2048 * MIB, 100 * MIB),)
    assert facts.processor.cpu_quota == 1.5


def test_memory_high_is_a_limit_too(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/service\n",
            "proc/self/mountinfo": "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
            "sys/fs/cgroup/service/memory.max": "1000\n",
            "sys/fs/cgroup/service/memory.high": "800\n",
            "sys/fs/cgroup/service/memory.current": "300\n",
        },
    )
    assert [(limit.file, limit.headroom_bytes) for limit in memory_limits(tmp_path)] == [
        ("service/memory.max", 700),
        ("service/memory.high", 500),
    ]


def test_a_path_that_leads_out_of_the_namespace_is_read_at_the_mount(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/../other\n",
            "proc/self/mountinfo": "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
            "sys/fs/cgroup/memory.max": "1000\n",
            "sys/fs/cgroup/memory.current": "1200\n",
        },
    )
    assert [(limit.file, limit.headroom_bytes) for limit in memory_limits(tmp_path)] == [("memory.max", 0)]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"proc/self/cgroup": "garbage\n", "proc/self/mountinfo": "garbage\n"},
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": "30 24 0:26 / /cg rw - cgroup2 cgroup rw\n",
            "cg/memory.max": "lots\n",
        },
    ],
)
def test_a_machine_without_limits_has_none(files: dict[str, str], tmp_path: Path) -> None:
    write_tree(tmp_path, files)
    assert memory_limits(tmp_path) == ()


def test_the_machine_the_tests_run_on_can_be_probed() -> None:
    facts = probe()
    assert facts.machine == platform.machine()
    assert facts.cores >= 1
    assert 0 < facts.available_bytes <= facts.memory.total_bytes


READ = [
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/swaps",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/self/status",
    "proc/device-tree/compatible",
    "proc/driver/nvidia/version",
    "proc/driver/nvidia/gpus/0000:01:00.0/information",
    "etc/nv_tegra_release",
    "etc/nvpmodel.conf",
    "var/lib/nvpmodel/status",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu0/cpu_capacity",
    "sys/class/thermal/thermal_zone0/temp",
    "sys/class/thermal/thermal_zone0/trip_point_0_type",
    "sys/class/thermal/thermal_zone0/trip_point_0_temp",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory.current",
    "sys/fs/cgroup/memory.stat",
    "sys/fs/cgroup/cpu.max",
]
PIECES = [
    "0::/",
    "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw",
    "0-3",
    "-",
    ",",
    "9999999999-",
    "\u00b2",
    "\\999",
]
PIECES += [
    "MemTotal: ",
    " kB",
    "pmode:",
    "passive",
    "max",
    "100000",
    "# R36 (release), REVISION: 4.3",
    ":",
    " ",
    "\0",
    "\n",
]
DAMAGED = st.one_of(
    st.binary(max_size=40), st.lists(st.sampled_from(PIECES), max_size=8).map(lambda p: "".join(p).encode())
)


@settings(max_examples=examples(40))
@given(st.dictionaries(st.sampled_from(READ), DAMAGED, max_size=8))
def test_damaged_files_still_give_facts(contents: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, content in contents.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        facts = read_facts(root, "aarch64", None, {}, ())
        assert facts.cores >= 1
        assert facts.memory.usable_bytes >= 0
        assert choose("auto", facts, builtin_profiles()).profile.threads(facts) >= 1
