#include "backend/gpu/device.h"

#include <algorithm>
#include <cctype>

#include "backend/gpu/blas.h"
#include "backend/gpu/vendor/parts.h"
#include "base/error.h"

namespace hearth::gpu {
namespace vendor {
namespace {

std::string text_of(Result result) {
  return fmt::format("{} ({})", RUNTIME(GetErrorString)(result), RUNTIME(GetErrorName)(result));
}

/// How many there are, or why there are none.
struct Count {
  int gpus = 0;
  Result result = RUNTIME(Success);
};
Count count_gpus() {
  Count count;
  count.result = RUNTIME(GetDeviceCount)(&count.gpus);
  if (count.result != RUNTIME(Success)) count.gpus = 0;
  ignore(count.result);
  return count;
}

std::string driver_version() {
  int driver = 0, library = 0;
  ignore(RUNTIME(DriverGetVersion)(&driver));
  ignore(RUNTIME(RuntimeGetVersion)(&library));
  return fmt::format("{0} driver {1}, {0} runtime {2}", kName, version_text(driver), version_text(library));
}

std::string pci_address(int index) {
  char address[32] = "";
  check(RUNTIME(DeviceGetPCIBusId)(address, sizeof address, index), "asking for the GPU's address");
  std::string text = address;
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

DeviceInfo info_of(int index) {
  Properties gpu;
  check(RUNTIME(GetDeviceProperties)(&gpu, index), "asking for the GPU's properties");
  return {.name = gpu.name,
          .architecture = architecture(gpu),
          .pci_address = pci_address(index),
          .driver = driver_version(),
          .memory_bytes = static_cast<int64_t>(gpu.totalGlobalMem),
          .shared_bytes = static_cast<int64_t>(most_shared_bytes(gpu)),
          .num_multiprocessors = gpu.multiProcessorCount,
          .integrated = gpu.integrated != 0};
}

}  // namespace

void fail(Result result, std::string_view doing) {
  ignore(result);
  throw DeviceError(result == kOutOfMemory ? DeviceError::Kind::out_of_memory : DeviceError::Kind::fault,
                    fmt::format("{} failed: {}", doing, text_of(result)));
}

}  // namespace vendor

using namespace vendor;

Runtime runtime() {
  int library = 0;
  ignore(RUNTIME(RuntimeGetVersion)(&library));
  const Result result = count_gpus().result;
  return {.name = kName,
          .version = version_text(library),
          .architectures = HEARTH_GPU_ARCHITECTURES,
          .library = blas_library(),
          .fault = result == RUNTIME(Success) ? "" : text_of(result)};
}

std::vector<DeviceInfo> list_devices() {
  const int count = count_gpus().gpus;
  std::vector<DeviceInfo> all;
  for (int index = 0; index < count; ++index) all.push_back(info_of(index));
  return all;
}

Device::Device(int index) {
  parts_ = std::make_unique<Parts>(Parts{.index = index, .info = info_of(index)});
  make_current(*parts_);
}
Device::~Device() = default;
const DeviceInfo& Device::info() const { return parts_->info; }

int64_t Device::free_bytes() const {
  make_current(*parts_);
  size_t free = 0, all = 0;
  check(RUNTIME(MemGetInfo)(&free, &all), "asking for the GPU's free memory");
  return static_cast<int64_t>(free);
}

std::byte* Device::allocate(int64_t num_bytes) {
  make_current(*parts_);
  void* memory = nullptr;
  check(RUNTIME(Malloc)(&memory, static_cast<size_t>(std::max<int64_t>(1, num_bytes))),
        fmt::format("allocating {} bytes on {}", num_bytes, parts_->info.name));
  return static_cast<std::byte*>(memory);
}
void Device::release(std::byte* memory) {
  if (!no_answer) ignore(RUNTIME(Free)(memory));
}

HostMemory::HostMemory(Device& device, int64_t num_bytes) {
  make_current(device.parts());
  void* memory = nullptr;
  check(allocate_host(&memory, static_cast<size_t>(std::max<int64_t>(1, num_bytes))),
        fmt::format("allocating {} bytes of page-locked memory", num_bytes));
  data_ = static_cast<std::byte*>(memory);
}
HostMemory::~HostMemory() {
  if (!no_answer) ignore(release_host(data_));
}

}  // namespace hearth::gpu
