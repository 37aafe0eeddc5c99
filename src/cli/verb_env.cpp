#include <fmt/format.h>

#include <span>

#include "backend/cpu/simd/simd.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/version.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "exec/device/gpu_choice.h"
#include "system/environment.h"

namespace hearth::cli {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = "";  // clang's version begins with its name.
#else
constexpr const char* kCompiler = "g++ ";
#endif

void print_program(std::span<const gpu::Runtime> runtimes) {
  say("built\n  hearth {}, compiled by {}{}\n", kVersion, kCompiler, __VERSION__);
  say("  processor: kernels for {}, {} threads\n", cpu::simd().isa, num_available_cpus());
  if (runtimes.empty()) say("  GPUs: emulated ones alone (device=emulated)\n");
  for (const gpu::Runtime& runtime : runtimes) {
    if (runtime.architectures.empty()) {
      say("  GPUs: {}, not opened: {}\n", runtime.name, runtime.fault);
    } else {
      say("  GPUs: {} {}, kernels for {}, matmuls of {}\n", runtime.name, runtime.version,
          runtime.architectures, runtime.library.empty() ? "its own alone" : runtime.library);
    }
  }
}

void print_devices(const system::Environment& environment) {
  for (size_t i = 0; i < environment.devices.size(); ++i) {
    const gpu::DeviceInfo& gpu = environment.devices[i];
    say("  device=gpu:{} or gpu:{}: {}, {}, {}, {}{}\n", i, gpu.pci_address, gpu.name, gpu.architecture,
        human_bytes(gpu.memory_bytes), gpu.driver_version,
        exec::is_integrated(gpu) ? ", shares the processor's memory" : "");
  }
}

void print_machine(const system::Environment& environment) {
  say("found\n");
  for (const system::PciGpu& gpu : environment.gpus) {
    say("  {} {} {}: {}{}, driver {}{}\n", gpu.pci_address,
        gpu.vendor == system::PciGpu::Vendor::amd ? "AMD" : "NVIDIA", gpu.device_id,
        gpu.architecture.empty() ? "architecture unknown" : gpu.architecture,
        gpu.integrated ? ", shares the processor's memory" : "", gpu.driver.empty() ? "missing" : gpu.driver,
        gpu.memory_bytes == 0 ? "" : ", " + human_bytes(gpu.memory_bytes));
    if (gpu.link_width > 0) {
      say("    PCIe x{} of x{}, {}\n", gpu.link_width, gpu.most_link_width, gpu.link_speed);
    }
  }
  for (const system::DeviceFile& file : environment.files)
    say("  {}: group {}, {}\n", file.path, file.group, file.usable ? "usable" : "not yours to use");
  print_devices(environment);
}

void run_env() {
  const system::Environment environment = system::look_around("/", system::own_identity());
  print_program(environment.runtimes);
  print_machine(environment);
  say("missing\n");
  const std::vector<system::Hindrance> found = system::hindrances(environment);
  for (const system::Hindrance& hindrance : found) say("  {}\n    -> {}\n", hindrance.what, hindrance.remedy);
  if (found.empty()) say("  nothing\n");
}

}  // namespace

void add_env(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("env", "What was built, which GPUs are here, and what is missing");
  set_example(*verb, "hearth env");
  verb->callback(run_env);
}

}  // namespace hearth::cli
