#pragma once

#include <cstdint>
#include <string>

#include "backend/gpu/device.h"

namespace hearth::exec {

struct Program;

/// True if a display is connected to the GPU with this PCI address.
bool has_display(const std::string& pci_address);
/// Returns the GPU memory that is left free by default: more for a GPU with a display, whose desktop grows.
int64_t default_reserve_bytes(const gpu::DeviceInfo& gpu);
/// Returns a warning if the GPU has a display and a step of the program takes long enough, by the cost model,
/// to freeze the desktop; otherwise empty.
std::string display_warning(const gpu::DeviceInfo& gpu, const Program& program);

}  // namespace hearth::exec
