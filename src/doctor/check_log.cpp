// Checks the kernel log for errors of GPUs since the system started.
#include <map>

#include "doctor/checks.h"

namespace hearth::doctor {
namespace {

using Kind = system::LoggedEvent::Kind;

struct Meaning {
  Level level;
  std::string_view id, what, cost, fix;
};
const std::map<Kind, Meaning>& meanings() {
  static const std::map<Kind, Meaning> all = {
      {Kind::lost,
       {Level::broken, "gpu-vanished", "a GPU was lost from the bus",
        "it is gone until the machine is powered off",
        "sudo poweroff, wait a minute, switch on; check power cables, riser and slot"}},
      {Kind::atomics,
       {Level::broken, "pcie-atomics", "the slot cannot do PCIe atomics", "the GPU cannot compute there",
        "move it to a slot that is connected to the processor directly"}},
      {Kind::reset,
       {Level::warning, "gpu-reset", "the GPU was reset", "whatever ran on it was lost",
        "if resets return: lower its power limit, check its power cables, then the kernel and firmware "
        "versions"}},
      {Kind::timeout,
       {Level::warning, "gpu-timeout", "the GPU did not finish its work in time",
        "the run restarts from its newest snapshot",
        "newer firmware and kernel; displays on other graphics; lower clocks"}},
      {Kind::fault,
       {Level::warning, "gpu-fault", "a program accessed memory of the GPU that is not its own",
        "the program was ended; if it was Hearth, please report it",
        "hearth doctor --deep tests every kernel"}},
      {Kind::xid,
       {Level::warning, "nvidia-xid", "NVIDIA's driver reported an error (Xid)",
        "the program was ended, or the GPU needs a reset",
        "look up the number after Xid in NVIDIA's list of Xid errors"}},
      {Kind::firmware,
       {Level::broken, "firmware-missing", "the driver's firmware is missing", "the GPU does not start",
        "Debian: sudo apt install firmware-amd-graphics; Ubuntu: sudo apt install linux-firmware; then "
        "restart"}},
  };
  return all;
}

}  // namespace

void check_log(const Machine& machine, Findings& found) {
  if (!machine.log_was_read) {
    found.push_back({.level = Level::note,
                     .id = "kernel-log",
                     .what = "the kernel's log cannot be read",
                     .cost = "past resets and faults of the GPU are not known",
                     .fix = "sudo hearth doctor"});
    return;
  }
  std::map<Kind, int> counts;
  std::map<Kind, std::string> last;
  for (const system::LoggedEvent& event : machine.events) {
    ++counts[event.kind];
    last[event.kind] = event.line;
  }
  if (counts.empty()) found.push_back({.id = "kernel-log", .what = "the kernel's log has no faults of GPUs"});
  for (const auto& [kind, count] : counts) {
    const Meaning& meaning = meanings().at(kind);
    found.push_back({.level = meaning.level,
                     .id = std::string(meaning.id),
                     .what = fmt::format("{}, by {} line{} of the kernel's log, the last one: {}",
                                         meaning.what, count, count == 1 ? "" : "s", last[kind]),
                     .cost = std::string(meaning.cost),
                     .fix = std::string(meaning.fix)});
  }
}

}  // namespace hearth::doctor
