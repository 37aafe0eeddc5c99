#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "backend/gpu/vendor/parts.h"
#include "base/error.h"

namespace hearth::gpu {
namespace vendor {
namespace {

std::string text_of(Result result) {
  return fmt::format("{} ({})", RUNTIME(GetErrorString)(result), RUNTIME(GetErrorName)(result));
}

/// Number of GPUs; if the runtime fails to count them, its error code.
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
  check(RUNTIME(DeviceGetPCIBusId)(address, sizeof address, index), "reading the PCI address of the GPU");
  std::string text = address;
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

constexpr const char* kReading = "reading the properties of the GPU";

#if defined(HEARTH_GPU_HIP)

/// Returns the architecture: "gfx1100". Releases of HIP differ in the layout of hipDeviceProp_t and in the
/// name of the function that fills it. The first member is always `name`, and the only other text that begins
/// with "gfx" is gcnArchName.
std::string architecture_of(int index) {
  constexpr size_t kNameBytes = sizeof(hipDeviceProp_t::name), kMaxBytes = 8192;
  Result (*read)(char*, int) = nullptr;
  for (const char* name :
       {"hipGetDevicePropertiesR0600", "hipGetDevicePropertiesR0000", "hipGetDeviceProperties"}) {
    if (read == nullptr) read = reinterpret_cast<Result (*)(char*, int)>(dlsym(RTLD_DEFAULT, name));
  }
  HEARTH_CHECK(read != nullptr);
  alignas(std::max_align_t) std::array<char, kMaxBytes> properties = {};
  check(read(properties.data(), index), kReading);
  std::string_view text(properties.data() + kNameBytes, kMaxBytes - kNameBytes);
  text.remove_prefix(std::min(text.size(), text.find("gfx")));
  const auto end =
      std::ranges::find_if(text, [](unsigned char c) { return std::isalnum(c) == 0; }) - text.begin();
  if (end == 0) throw DeviceError(DeviceError::Kind::fault, "the GPU's properties have no architecture");
  return std::string(text.substr(0, static_cast<size_t>(end)));
}

DeviceInfo properties_of(int index) {
  const auto attribute = [&](hipDeviceAttribute_t which) {
    int value = 0;
    check(hipDeviceGetAttribute(&value, which, index), kReading);
    return value;
  };
  char name[256] = "";
  size_t memory_bytes = 0;
  check(hipDeviceGetName(name, sizeof name, index), kReading);
  check(hipDeviceTotalMem(&memory_bytes, index), kReading);
  return {.name = name,
          .architecture = architecture_of(index),
          .memory_bytes = static_cast<int64_t>(memory_bytes),
          .shared_bytes = attribute(hipDeviceAttributeMaxSharedMemoryPerBlock),
          .num_multiprocessors = attribute(hipDeviceAttributeMultiprocessorCount),
          .integrated = attribute(hipDeviceAttributeIntegrated) != 0};
}

#else

DeviceInfo properties_of(int index) {
  cudaDeviceProp gpu;
  check(cudaGetDeviceProperties(&gpu, index), kReading);
  return {.name = gpu.name,
          .architecture = fmt::format("sm_{}{}", gpu.major, gpu.minor),
          .memory_bytes = static_cast<int64_t>(gpu.totalGlobalMem),
          .shared_bytes = static_cast<int64_t>(gpu.sharedMemPerBlockOptin),
          .num_multiprocessors = gpu.multiProcessorCount,
          .integrated = gpu.integrated != 0};
}

#endif

class VendorDevice : public Device::Parts {
 public:
  explicit VendorDevice(const DeviceInfo& info)
      : shared_{.index = info.index, .name = info.name, .low_priority = info.has_display} {
    shared_.make_current();
  }

  int64_t free_bytes() const override {
    shared_.make_current();
    size_t free = 0, all = 0;
    check(RUNTIME(MemGetInfo)(&free, &all), "reading the free memory of the GPU");
    return static_cast<int64_t>(free);
  }
  std::byte* allocate(int64_t num_bytes) override {
    shared_.make_current();
    void* memory = nullptr;
    check(RUNTIME(Malloc)(&memory, static_cast<size_t>(std::max<int64_t>(1, num_bytes))),
          fmt::format("allocating {} bytes on {}", num_bytes, shared_.name));
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory) override {
    if (!timed_out) ignore(RUNTIME(Free)(memory));
  }
  std::byte* allocate_host(int64_t num_bytes) override {
    shared_.make_current();
    void* memory = nullptr;
    check(vendor::allocate_host(&memory, static_cast<size_t>(std::max<int64_t>(1, num_bytes))),
          fmt::format("allocating {} bytes of page-locked memory", num_bytes));
    return static_cast<std::byte*>(memory);
  }
  std::unique_ptr<Stream::Parts> make_stream() override { return vendor::make_stream(shared_); }

 private:
  SharedParts shared_;
};

class VendorDriver : public Driver {
 public:
  explicit VendorDriver(FindKernel find_kernel) : find_kernel_(find_kernel) {}

  Runtime runtime() const override {
    int library = 0;
    ignore(RUNTIME(RuntimeGetVersion)(&library));
    const Result result = count_gpus().result;
    return {.name = kName,
            .version = version_text(library),
            .architectures = HEARTH_GPU_ARCHITECTURES,
            .library = blas_library(),
            .library_workspace_bytes = blas_workspace_bytes(),
            .fault = result == RUNTIME(Success) ? "" : text_of(result)};
  }
  std::vector<DeviceInfo> list_devices() const override {
    const int count = count_gpus().gpus;
    std::vector<DeviceInfo> all;
    for (int index = 0; index < count; ++index) all.push_back(info_of(index));
    return all;
  }
  std::unique_ptr<Device::Parts> open(const DeviceInfo& info) const override {
    return std::make_unique<VendorDevice>(info);
  }
  void release_host(std::byte* memory) const override {
    if (!timed_out) ignore(vendor::release_host(memory));
  }
  const ir::GpuKernel* find_kernel(std::string_view op) const override { return find_kernel_(op); }

 private:
  DeviceInfo info_of(int index) const;

  FindKernel find_kernel_;
};

DeviceInfo VendorDriver::info_of(int index) const {
  DeviceInfo gpu = properties_of(index);
  gpu.driver = this;
  gpu.index = index;
  gpu.pci_address = pci_address(index);
  gpu.driver_version = driver_version();
  return gpu;
}

}  // namespace

std::string failure_text(Result result, std::string_view doing) {
  return fmt::format("{} failed: {}", doing, text_of(result));
}

void fail(Result result, std::string_view doing) {
  using Kind = DeviceError::Kind;
  ignore(result);
  const bool has_code = std::ranges::find(kNoCode, result) == std::end(kNoCode);
  throw DeviceError(result == kOutOfMemory ? Kind::out_of_memory
                    : has_code             ? Kind::fault
                                           : Kind::no_code,
                    failure_text(result, doing));
}

}  // namespace vendor

std::unique_ptr<Driver> make_driver(FindKernel find_kernel) {
  return std::make_unique<vendor::VendorDriver>(find_kernel);
}

}  // namespace hearth::gpu
