import platform

import mlx.core as mx

from mlxgpt.machine.device import chip_name, describe_device, parse_cpuinfo, usable_cores


def test_the_device_is_described() -> None:
    device = describe_device()
    assert device.has_gpu == (mx.default_device().type == mx.DeviceType.gpu)
    assert device.mlx == mx.__version__
    assert device.python.startswith(platform.python_version())
    assert device.cores == usable_cores() >= 1
    assert (device.gpu_memory is not None) or not device.has_gpu
    assert device.chip == chip_name() != ""
    assert device.os


def test_the_chip_is_read_from_cpuinfo() -> None:
    intel = "processor\t: 0\nmodel\t\t: 6\nmodel name\t: Intel(R) Xeon(R) @ 2.20GHz\nflags\t: fpu\n"
    assert parse_cpuinfo(intel) == "Intel(R) Xeon(R) @ 2.20GHz"
    raspberry = "processor\t: 0\nBogoMIPS\t: 108.00\n\nModel\t\t: Raspberry Pi 5\n"
    assert parse_cpuinfo(raspberry) == "Raspberry Pi 5"
    assert parse_cpuinfo("processor\t: 0\n") is None
