"""Temperatures are read off what boards show, and nothing else is taken for one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from edge_rag.throttle.sensors import read_zones, temperatures
from tests.unit.throttle.boards import (
    AMD_MINI_PC,
    INTEL_MINI_PC,
    JETSON_ORIN_NANO,
    RASPBERRY_PI_5,
    write_tree,
    zone,
)


@pytest.mark.parametrize(
    ("board", "expected"),
    [
        (RASPBERRY_PI_5, {"cpu-thermal": 54.8}),
        (JETSON_ORIN_NANO, {"cpu-thermal": 49.343, "gpu-thermal": 48.812, "cv0-thermal": 0, "tj-thermal": 50.687}),
        (INTEL_MINI_PC, {"acpitz": 27.8, "x86_pkg_temp": 61}),
        (AMD_MINI_PC, {"k10temp": 72.5}),
        ({}, {}),
    ],
    ids=["pi", "jetson", "intel", "amd", "nothing"],
)
def test_each_boards_zones_are_read_once_in_its_order(
    tmp_path: Path, board: Mapping[str, str], expected: Mapping[str, float]
) -> None:
    found = {reading.zone: reading.celsius for reading in temperatures(write_tree(tmp_path, board))}
    assert list(found.items()) == list(expected.items())


def test_trip_points_are_the_lowest_of_their_type_and_unused_ones_are_none(tmp_path: Path) -> None:
    jetson, *_ = read_zones(write_tree(tmp_path, JETSON_ORIN_NANO))
    assert (jetson.passive_celsius, jetson.critical_celsius) == (99.0, 104.5)
    _, package = read_zones(write_tree(tmp_path / "intel", INTEL_MINI_PC))
    assert (package.passive_celsius, package.critical_celsius) == (None, None)


@pytest.mark.parametrize("temp", ["", "error\n", "-274000\n", "2147483647\n"], ids=["empty", "word", "cold", "huge"])
def test_a_sensor_without_a_temperature_is_left_out_and_the_others_stay(tmp_path: Path, temp: str) -> None:
    board = {**zone(0, "soc", 50_000), **zone(1, "modem", 0), "sys/class/thermal/thermal_zone1/temp": temp}
    assert [each.name for each in read_zones(write_tree(tmp_path, board))] == ["soc"]


def test_zones_of_one_name_are_told_apart(tmp_path: Path) -> None:
    board = {**zone(0, "acpitz", 30_000), **zone(2, "acpitz", 40_000), **zone(10, "acpitz", 50_000)}
    assert [(z.name, z.celsius) for z in read_zones(write_tree(tmp_path, board))] == [
        ("acpitz", 30),
        ("acpitz 2", 40),
        ("acpitz 3", 50),
    ]
