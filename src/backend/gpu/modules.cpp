#include "backend/gpu/modules.h"

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/shared_library.h"

/// The emulator's module if it is linked into this program, otherwise null.
extern "C" __attribute__((weak)) const hearth::gpu::Module hearth_gpu_module;

namespace hearth::gpu {
namespace {

namespace fs = std::filesystem;

/// Result of opening a module: its driver, or the reason it failed.
struct Opened {
  const Driver* driver = nullptr;
  std::string fault;
};

Opened open(const fs::path& file) {
  // Symbols are visible to libraries loaded later: the emulator's substitute for NCCL calls functions of the
  // emulator.
  const SharedLibrary library({file.string()}, SharedLibrary::Symbols::offered);
  const Module* module = nullptr;
  if (!library) return {.driver = nullptr, .fault = library.fault()};
  if (!library.find("hearth_gpu_module", module) || module->layout != kModuleLayout)
    return {.driver = nullptr,
            .fault = file.string() + " belongs to another build of Hearth; run tools/build again"};
  return {.driver = &module->driver(), .fault = ""};
}

/// Returns the file names of the HIP runtimes that a module works with, newest first. The first one that
/// opens also resolves the module's symbols.
std::vector<std::string> hip_files() {
  std::vector<std::string> files;
  for (const char* version : {"7", "6", "5"}) {
    const std::string file = std::string("libamdhip64.so.") + version;
    files.push_back(file);
    files.push_back(fs::path(rocm_folder()) / "lib" / file);
  }
  return files;
}

/// Opens the module for AMD's GPUs. A program has up to five streams, but HIP distributes streams over four
/// hardware queues unless set otherwise before it starts, and work of streams that share one runs in order.
Opened open_hip(const fs::path& file) {
  constexpr int kKeep = 0;
  setenv("GPU_MAX_HW_QUEUES", "8", kKeep);
  const SharedLibrary runtime(hip_files(), SharedLibrary::Symbols::offered);
  return runtime ? open(file) : Opened{.driver = nullptr, .fault = runtime.fault()};
}

struct Vendor {
  std::string name;  ///< name of the vendor's runtime: "HIP" or "CUDA"
  Opened opened;
};

const std::vector<Vendor>& vendors() {
  static const std::vector<Vendor> found = [] {
    std::vector<Vendor> all;
    if (const fs::path file = find_module("hip"); !file.empty()) all.push_back({"HIP", open_hip(file)});
    if (const fs::path file = find_module("cuda"); !file.empty()) all.push_back({"CUDA", open(file)});
    return all;
  }();
  return found;
}

Opened open_emulator() {
  if (&hearth_gpu_module != nullptr) return {.driver = &hearth_gpu_module.driver(), .fault = ""};
  const fs::path file = find_module("emu");
  if (file.empty()) {
    const char* const folder = std::getenv("HEARTH_MODULES");
    const bool is_set = folder != nullptr && *folder != '\0';
    return {.driver = nullptr,
            .fault = std::string("there is no libhearth_emu.so in ") +
                     (is_set ? std::string(folder) + ", the folder set by HEARTH_MODULES"
                             : "the program's folder; run tools/build --gpu emulated")};
  }
  return open(file);
}

}  // namespace

std::string rocm_folder() {
  const char* const told = std::getenv("ROCM_PATH");
  return told == nullptr || *told == '\0' ? "/opt/rocm" : told;
}

std::vector<Runtime> runtimes() {
  std::vector<Runtime> all;
  for (const Vendor& vendor : vendors()) {
    const Opened& opened = vendor.opened;
    all.push_back(opened.driver != nullptr ? opened.driver->runtime()
                                           : Runtime{.name = vendor.name, .fault = opened.fault});
  }
  return all;
}

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> all;
  for (const Vendor& vendor : vendors()) {
    if (vendor.opened.driver == nullptr) continue;
    for (DeviceInfo& gpu : vendor.opened.driver->list_devices()) all.push_back(std::move(gpu));
  }
  return all;
}

const Driver* vendor_driver() {
  for (const Vendor& vendor : vendors()) {
    if (vendor.opened.driver != nullptr) return vendor.opened.driver;
  }
  return nullptr;
}

const Driver& emulator() {
  static const Opened opened = open_emulator();
  if (opened.driver == nullptr) user_error("cannot open the module for emulated GPUs: {}", opened.fault);
  return *opened.driver;
}

}  // namespace hearth::gpu
