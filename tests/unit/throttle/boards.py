"""Sysfs trees of real boards, written below a test's folder."""

from collections.abc import Mapping
from pathlib import Path


def write_tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def zone(number: int, name: str, millidegrees: int, **trips: int) -> dict[str, str]:
    folder = f"sys/class/thermal/thermal_zone{number}"
    files = {f"{folder}/type": f"{name}\n", f"{folder}/temp": f"{millidegrees}\n"}
    for index, (kind, at) in enumerate(trips.items()):
        files[f"{folder}/trip_point_{index}_type"] = f"{kind}\n"
        files[f"{folder}/trip_point_{index}_temp"] = f"{at}\n"
    return files


RASPBERRY_PI_5 = zone(0, "cpu-thermal", 54_800, critical=110_000)
JETSON_ORIN_NANO = {
    **zone(0, "cpu-thermal", 49_343, passive=99_000, hot=103_000, critical=104_500),
    **zone(1, "gpu-thermal", 48_812, passive=99_000, critical=104_500),
    **zone(2, "cv0-thermal", 0),
    **zone(9, "tj-thermal", 50_687, passive=99_000, critical=104_500),
    **zone(10, "PMIC-Die", 100_000),
}
INTEL_MINI_PC = {
    **zone(0, "acpitz", 27_800, critical=119_000),
    **zone(1, "x86_pkg_temp", 61_000, passive=0),
    "sys/class/hwmon/hwmon2/name": "coretemp\n",
    "sys/class/hwmon/hwmon2/temp1_input": "61000\n",
}
AMD_MINI_PC = {
    "sys/class/hwmon/hwmon0/name": "nvme\n",
    "sys/class/hwmon/hwmon0/temp1_input": "38850\n",
    "sys/class/hwmon/hwmon3/name": "k10temp\n",
    "sys/class/hwmon/hwmon3/temp1_input": "72500\n",
}


def ina3221(number: int, **channels: tuple[int, int]) -> dict[str, str]:
    folder = f"sys/class/hwmon/hwmon{number}"
    files = {f"{folder}/name": "ina3221\n"}
    for index, (label, (millivolts, milliamperes)) in enumerate(channels.items(), 1):
        files[f"{folder}/in{index}_label"] = f"{label}\n"
        files[f"{folder}/in{index}_input"] = f"{millivolts}\n"
        files[f"{folder}/curr{index}_input"] = f"{milliamperes}\n"
    return files


def rapl(number: int, name: str, microjoules: int, full: int = 262_143_328_850) -> dict[str, str]:
    folder = f"sys/class/powercap/intel-rapl:{number}"
    return {
        f"{folder}/name": f"{name}\n",
        f"{folder}/energy_uj": f"{microjoules}\n",
        f"{folder}/max_energy_range_uj": f"{full}\n",
    }


JETSON_ORIN_NANO_POWER = ina3221(1, VDD_IN=(5016, 1224), VDD_CPU_GPU_CV=(5016, 320), VDD_SOC=(5016, 300))
JETSON_AGX_ORIN_POWER = {
    **ina3221(2, VDD_GPU_SOC=(19_000, 300), VDD_CPU_CV=(19_000, 100), VIN_SYS_5V0=(5000, 800)),
    **ina3221(3, VDDQ_VDD2_1V8AO=(5000, 200)),
}
