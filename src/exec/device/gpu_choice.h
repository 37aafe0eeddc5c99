#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/driver.h"
#include "exec/device/recorder.h"

namespace hearth::exec {

/// A GPU as requested by a recipe.
struct GpuRequest {
  /// "gpu" (the first discrete GPU), "gpu:1" (by index), or "gpu:0000:03:00.0" (by PCI address); for emulated
  /// GPUs "emulated" instead of "gpu".
  std::string device = "gpu";
  /// Index among the discrete GPUs; used if `device` is "gpu" or "emulated" without index or address.
  int number = 0;
  /// Bytes of GPU memory to leave free, for example for the desktop; nullopt: default_reserve_bytes().
  std::optional<int64_t> reserve_bytes = 0;
  RecordMode record = RecordMode::automatic;
  fs::path recordings = {};  ///< file with the results of recordings (Recorder); empty: none
};

/// True if the text has one of the forms of GpuRequest::device.
bool names_gpu(std::string_view device);
/// True if kernels compiled for `architectures` ("gfx1030 gfx1100") run on a GPU of architecture `gpu`. AMD
/// kernels run on the same architecture only, NVIDIA kernels on the same and all later ones.
bool has_kernels_for(std::string_view architectures, std::string_view gpu);

/// Lists the vendors' GPUs for "gpu", the emulated ones for "emulated". Throws UserError if the emulator is
/// missing.
std::vector<gpu::DeviceInfo> list_gpus(std::string_view device);
/// Returns the GPU selected by `device` and `number`. Throws UserError with advice if there is none, or if
/// this build has no kernels for it.
gpu::DeviceInfo find_gpu(const std::string& device, int number = 0);
/// Returns the index in `gpus` of the GPU selected by `device` and `number`. Throws the same errors as
/// find_gpu.
size_t choose_gpu(const std::string& device, std::span<const gpu::DeviceInfo> gpus,
                  std::span<const gpu::Runtime> runtimes, int number = 0);
/// Returns the driver whose kernels are used to compile programs for that device, even if the machine has no
/// such GPU.
const gpu::Driver& driver_of(const std::string& device);
/// Returns the runtime of the GPU; it must be in `runtimes`.
const gpu::Runtime& runtime_of(const gpu::DeviceInfo& gpu, std::span<const gpu::Runtime> runtimes);
/// Returns the command that builds the runtime's module for that architecture.
std::string build_command(const gpu::Runtime& runtime, std::string_view architecture);

/// Returns a warning for an AMD GPU if HSA_OVERRIDE_GFX_VERSION is set; otherwise an empty string. `version`:
/// value of the variable; null: not set.
std::string override_warning(const char* version);

}  // namespace hearth::exec
