#include "exec/device/display.h"

#include <fmt/format.h>

#include <algorithm>

#include "exec/program.h"
#include "system/pci_gpu.h"

namespace hearth::exec {
namespace {

constexpr int64_t kReserveBytes = int64_t{512} << 20, kDisplayReserveBytes = int64_t{1} << 30;
/// Max launch time without a warning. AMD's driver resets a GPU whose desktop cannot draw for some seconds.
constexpr double kMaxLaunchSeconds = 0.5;

}  // namespace

bool has_display(const std::string& pci_address) {
  system::Tree tree;
  return system::num_displays(tree, tree.resolved("sys/bus/pci/devices/" + pci_address)) > 0;
}

int64_t default_reserve_bytes(const gpu::DeviceInfo& gpu) {
  return gpu.has_display ? kDisplayReserveBytes : kReserveBytes;
}

std::string display_warning(const gpu::DeviceInfo& gpu, const Program& program) {
  if (!gpu.has_display) return "";
  const auto is_shorter = [](const Step& a, const Step& b) {
    return (a.queue == Queue::compute ? a.seconds : 0) < (b.queue == Queue::compute ? b.seconds : 0);
  };
  const auto longest = std::ranges::max_element(program.steps, is_shorter);
  if (longest == program.steps.end() || longest->queue != Queue::compute ||
      longest->seconds <= kMaxLaunchSeconds)
    return "";
  return fmt::format(
      "a display is connected to {} ({}), and it freezes while '{}' runs, {:.1f} s by the model; lower "
      "train.batch, or connect the display to another GPU",
      gpu.name, gpu.pci_address, program.graph.nodes[longest->node].name, longest->seconds);
}

}  // namespace hearth::exec
