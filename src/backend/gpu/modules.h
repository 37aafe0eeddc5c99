#pragma once

#include <string>
#include <vector>

#include "backend/gpu/driver.h"

/// GPU modules: libhearth_hip.so for AMD, libhearth_cuda.so for NVIDIA, libhearth_emu.so for emulated GPUs.
/// Modules are searched in the program's folder, in ../lib/hearth relative to it, or in HEARTH_MODULES, and
/// opened on first use; test programs may link the emulator.
namespace hearth::gpu {

/// Returns the ROCm folder in which to look for libraries that are not in the system's folders: ROCM_PATH, or
/// /opt/rocm.
std::string rocm_folder();
/// Returns the runtimes HIP and CUDA, each if its module exists. Runtime::fault is set if a module could not
/// be opened.
std::vector<Runtime> runtimes();
/// Lists the GPUs of both runtimes, HIP's first.
std::vector<DeviceInfo> list_devices();
/// Returns the driver of the first vendor module (HIP, then CUDA) that opened; null if none did.
const Driver* vendor_driver();
/// Returns the emulator; throws UserError if its module is missing.
const Driver& emulator();

}  // namespace hearth::gpu
