#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/driver.h"
#include "exec/device/recorder.h"

namespace hearth::exec {

/// A GPU as a recipe asks for it.
struct GpuWish {
  /// "gpu", the first with memory of its own; "gpu:1", by its number; "gpu:0000:03:00.0", by its address; the
  /// same with "emulated".
  std::string device = "gpu";
  /// Of the GPUs that such a word without a number stands for: 0 is the first.
  int number = 0;
  /// Left free for the desktop.
  int64_t reserve_bytes = 0;
  RecordMode record = RecordMode::automatic;
};

/// Whether it has one of those forms.
bool names_gpu(std::string_view device);
/// Whether kernels for `architectures` ("gfx1030 gfx1100") run on it: AMD's on their own architecture alone,
/// NVIDIA's on every later one.
bool has_kernels_for(std::string_view architectures, std::string_view gpu);

/// The GPUs that "gpu" or "emulated" stand for. UserError where there is no emulator.
std::vector<gpu::DeviceInfo> list_gpus(std::string_view device);
/// Of list_gpus the one that a wish's device and number stand for. UserError where there is none, with what
/// to look at, and where this program has no kernels for it.
gpu::DeviceInfo find_gpu(const std::string& device, int number = 0);
/// The same on a machine that has these: its place among them.
size_t choose_gpu(const std::string& device, std::span<const gpu::DeviceInfo> gpus,
                  std::span<const gpu::Runtime> runtimes, int number = 0);
/// Whose kernels a program for that device is compiled from, be there such a GPU here or not.
const gpu::Driver& driver_of(const std::string& device);
/// Of the GPU, among these.
const gpu::Runtime& runtime_of(const gpu::DeviceInfo& gpu, std::span<const gpu::Runtime> runtimes);
/// What builds the module of a runtime for that architecture.
std::string build_command(const gpu::Runtime& runtime, std::string_view architecture);

/// What HSA_OVERRIDE_GFX_VERSION (null: not set) does to an AMD GPU, empty where it does nothing.
std::string override_warning(const char* version);

}  // namespace hearth::exec
