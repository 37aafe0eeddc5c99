#include "exec/device/gpu_choice.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "backend/gpu/modules.h"
#include "base/error.h"
#include "exec/device/display.h"

namespace hearth::exec {
namespace {

constexpr std::string_view kGpu = "gpu", kEmulated = "emulated", kHip = "HIP", kCuda = "CUDA";

/// Returns the part after "gpu:" or "emulated:"; empty for "gpu" and "emulated"; nullopt for other devices.
std::optional<std::string_view> selector_of(std::string_view device) {
  for (const std::string_view kind : {kGpu, kEmulated}) {
    if (device == kind) return "";
    if (device.starts_with(kind) && device.size() > kind.size() + 1 && device[kind.size()] == ':')
      return device.substr(kind.size() + 1);
  }
  return std::nullopt;
}

std::optional<int> number_of(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

/// True if the text is a PCI address such as 0000:03:00.0, with or without the domain.
bool is_address(std::string_view text) {
  constexpr std::string_view kForm = "xxxx:xx:xx.x";
  if (text.size() != kForm.size() && text.size() != kForm.size() - 5) return false;
  const std::string_view form = kForm.substr(kForm.size() - text.size());
  return std::ranges::equal(text, form, [](char c, char wanted) {
    return wanted == 'x' ? std::isxdigit(static_cast<unsigned char>(c)) != 0 : c == wanted;
  });
}

bool has_address(const gpu::DeviceInfo& gpu, std::string_view wanted) {
  const std::string_view own = gpu.pci_address;
  return own.size() >= wanted.size() &&
         std::ranges::equal(own.substr(own.size() - wanted.size()), wanted, [](char a, char b) {
           return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
         });
}

std::string described(std::span<const gpu::DeviceInfo> gpus) {
  std::string text;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const gpu::DeviceInfo& gpu = gpus[i];
    text += fmt::format("{}{} {} ({}, {}{})", i == 0 ? "" : ", ", i, gpu.name, gpu.architecture,
                        gpu.pci_address, is_integrated(gpu) ? ", integrated" : "");
  }
  return text;
}

[[noreturn]] void refuse_absence(const std::string& device, std::span<const gpu::Runtime> runtimes) {
  if (runtimes.empty()) {
    user_error(
        "device={} needs a module for GPUs, but this build of Hearth has none; run tools/build --gpu hip "
        "(AMD) or tools/build --gpu cuda (NVIDIA), or set device=emulated",
        device);
  }
  std::string faults, advice;
  for (const gpu::Runtime& runtime : runtimes) {
    if (!runtime.fault.empty()) faults += fmt::format("{}{}", faults.empty() ? ": " : "; ", runtime.fault);
    advice += runtime.name == kHip
                  ? "check ls -l /dev/kfd /dev/dri, and that id lists the groups render and video; "
                  : "check nvidia-smi and ls -l /dev/nvidia*; ";
  }
  user_error("no GPU found for device={}{}; {}run hearth doctor to see what is missing", device, faults,
             advice);
}

/// Returns the index in `gpus` of discrete GPU number `number`; throws UserError if there are not enough.
size_t counted(const std::string& device, int number, std::span<const gpu::DeviceInfo> gpus) {
  int num_passed = 0;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (!is_integrated(gpus[i]) && num_passed++ == number) return i;
  }
  if (num_passed > 0) {
    user_error("expected {} discrete GPUs for device={}, got {}; set devices={}", number + 1, device,
               described(gpus), num_passed);
  }
  user_error(
      "device={} selects discrete GPUs, but this machine has only {}; set device=gpu:{} to use this one",
      device, described(gpus), gpus[0].pci_address);
}

size_t named(const std::string& device, std::string_view selector, std::span<const gpu::DeviceInfo> gpus) {
  if (const auto number = number_of(selector)) {
    if (*number < std::ssize(gpus)) return static_cast<size_t>(*number);
  } else {
    const auto found =
        std::ranges::find_if(gpus, [&](const auto& gpu) { return has_address(gpu, selector); });
    if (found != gpus.end()) return static_cast<size_t>(found - gpus.begin());
  }
  user_error("device={} is not among the GPUs of this machine: {}; set device={}:{}", device, described(gpus),
             device.substr(0, device.find(':')), gpus[0].pci_address);
}

/// Returns the number in the name of a CUDA architecture: 86 for sm_86.
int cuda_number(std::string_view architecture) {
  return number_of(architecture.substr(architecture.find('_') + 1)).value_or(0);
}

}  // namespace

bool names_gpu(std::string_view device) {
  const auto selector = selector_of(device);
  return selector && (selector->empty() || number_of(*selector) || is_address(*selector));
}

bool has_kernels_for(std::string_view architectures, std::string_view gpu) {
  while (!architectures.empty()) {
    const std::string_view one = architectures.substr(0, architectures.find(' '));
    if (one == gpu || (one.starts_with("sm_") && cuda_number(one) <= cuda_number(gpu))) return true;
    architectures.remove_prefix(std::min(architectures.size(), one.size() + 1));
  }
  return false;
}

std::vector<gpu::DeviceInfo> list_gpus(std::string_view device) {
  if (device.starts_with(kEmulated)) return gpu::emulator().list_devices();
  std::vector<gpu::DeviceInfo> gpus = gpu::list_devices();
  for (gpu::DeviceInfo& gpu : gpus) gpu.has_display = has_display(gpu.pci_address);
  return gpus;
}

gpu::DeviceInfo find_gpu(const std::string& device, int number) {
  const std::vector<gpu::DeviceInfo> gpus = list_gpus(device);
  const std::vector<gpu::Runtime> runtimes =
      device.starts_with(kEmulated) ? std::vector{gpu::emulator().runtime()} : gpu::runtimes();
  return gpus[choose_gpu(device, gpus, runtimes, number)];
}

size_t choose_gpu(const std::string& device, std::span<const gpu::DeviceInfo> gpus,
                  std::span<const gpu::Runtime> runtimes, int number) {
  HEARTH_CHECK(names_gpu(device));
  if (gpus.empty()) refuse_absence(device, runtimes);
  const std::string_view selector = *selector_of(device);
  const size_t chosen = selector.empty() ? counted(device, number, gpus) : named(device, selector, gpus);
  const gpu::DeviceInfo& gpu = gpus[chosen];
  const gpu::Runtime& runtime = runtime_of(gpu, runtimes);
  if (!has_kernels_for(runtime.architectures, gpu.architecture)) {
    user_error("this build of Hearth has kernels for {}, but not for {} ({}, {}); run {}",
               runtime.architectures, gpu.name, gpu.architecture, gpu.pci_address,
               build_command(runtime, gpu.architecture));
  }
  return chosen;
}

const gpu::Driver& driver_of(const std::string& device) {
  if (device.starts_with(kEmulated)) return gpu::emulator();
  try {
    return *find_gpu(device).driver;
  } catch (const UserError&) {
    // Ignored here: the error is reported when the GPU is opened.
  }
  const gpu::Driver* const own = gpu::vendor_driver();
  return own == nullptr ? gpu::emulator() : *own;
}

const gpu::Runtime& runtime_of(const gpu::DeviceInfo& gpu, std::span<const gpu::Runtime> runtimes) {
  const std::string_view name = gpu.architecture.starts_with("gfx")   ? kHip
                                : gpu.architecture.starts_with("sm_") ? kCuda
                                                                      : kEmulated;
  const auto found = std::ranges::find(runtimes, name, &gpu::Runtime::name);
  HEARTH_CHECK(found != runtimes.end());
  return *found;
}

std::string build_command(const gpu::Runtime& runtime, std::string_view architecture) {
  return fmt::format("HEARTH_GPU_ARCHITECTURES={} tools/build --gpu {}", architecture,
                     runtime.name == kHip ? "hip" : "cuda");
}

std::string override_warning(const char* version) {
  if (version == nullptr || *version == '\0') return "";
  return fmt::format(
      "HSA_OVERRIDE_GFX_VERSION={} is set: the driver treats the GPU as another model, whose kernels "
      "may compute wrong numbers on it or hang the machine; unset it",
      version);
}

}  // namespace hearth::exec
