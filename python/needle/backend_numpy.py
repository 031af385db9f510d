"""The course's name for ``needle.array_namespace.numpy_mode``, the device of NEEDLE_BACKEND=np."""

from .array_namespace.numpy_mode import CPUDevice as CPUDevice
from .array_namespace.numpy_mode import Device as Device
from .array_namespace.numpy_mode import all_devices as all_devices
from .array_namespace.numpy_mode import cpu as cpu
from .array_namespace.numpy_mode import default_device as default_device
