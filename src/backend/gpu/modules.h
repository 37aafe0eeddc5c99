#pragma once

#include <string>
#include <vector>

#include "backend/gpu/driver.h"

/// Modules for GPUs: libhearth_hip.so for AMD's, libhearth_cuda.so for NVIDIA's, libhearth_emu.so for
/// emulated ones. They lie beside the program or in ../lib/hearth from there, or where HEARTH_MODULES says,
/// and are opened when somebody asks for their GPUs; a program of tests may have the emulator inside.
namespace hearth::gpu {

/// Where ROCm lies, if not among the system's libraries: ROCM_PATH, or /opt/rocm.
std::string rocm_folder();
/// HIP and CUDA, as far as there is a module: one that could not be opened has a fault.
std::vector<Runtime> runtimes();
/// Every GPU that they show, HIP's first.
std::vector<DeviceInfo> list_devices();
/// The first of them that was opened; null: none.
const Driver* vendor_driver();
/// UserError where its module is missing.
const Driver& emulator();

}  // namespace hearth::gpu
