"""The course's name for ``needle.array_namespace.numpy_mode``, the device of NEEDLE_BACKEND=np."""

from .array_namespace.numpy_mode import CPUDevice, Device, all_devices, cpu, default_device

__all__ = ["CPUDevice", "Device", "all_devices", "cpu", "default_device"]
