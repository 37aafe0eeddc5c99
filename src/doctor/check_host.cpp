// Checks the host: memory, locked memory, swap, disk, processors, NUMA, and files that block.
#include <algorithm>

#include "base/text.h"
#include "doctor/checks.h"

namespace hearth::doctor {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

void check_memory(const Machine& machine, Findings& found) {
  const int64_t total =
      machine.memory_limit ? std::min(*machine.memory_limit, machine.memory_bytes) : machine.memory_bytes;
  if (total == 0) return;
  int64_t largest = 0;
  for (const PciGpu& gpu : machine.gpus)
    if (!gpu.integrated) largest = std::max(largest, gpu.memory_bytes);
  if (total < largest) {
    found.push_back({.level = Level::note,
                     .id = "host-memory",
                     .what = fmt::format("{} of memory, less than the GPU's {}", human_bytes(total),
                                         human_bytes(largest)),
                     .cost = "little can be offloaded, and snapshots of a run for fast restarts may not fit",
                     .fix = "more memory, or smaller models"});
  } else {
    found.push_back({.id = "host-memory",
                     .what = fmt::format("{} of memory, {} available", human_bytes(total),
                                         human_bytes(machine.available_bytes))});
  }
  if (machine.swap_bytes == 0 && total < 32 * kGib) {
    found.push_back(
        {.level = Level::note,
         .id = "swap",
         .what = "there is no swap",
         .cost = "if memory runs out, the kernel kills a process, which may be the run",
         .fix =
             "sudo fallocate -l 8G /swap && sudo chmod 600 /swap && sudo mkswap /swap && sudo swapon /swap"});
  }
  if (machine.huge_page_bytes > total / 8) {
    found.push_back(
        {.level = Level::note,
         .id = "huge-pages",
         .what = fmt::format("{} are set aside for huge pages", human_bytes(machine.huge_page_bytes)),
         .cost = "Hearth does not use them, and other programs cannot",
         .fix = "sudo sysctl vm.nr_hugepages=0"});
  }
  if (machine.transparent_huge_pages == "never") {
    found.push_back({.level = Level::note,
                     .id = "huge-pages",
                     .what = "transparent huge pages are off",
                     .cost = "training on the processor is several percent slower",
                     .fix = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"});
  }
}

void check_locked(const Machine& machine, Findings& found) {
  if (!machine.locked_bytes || machine.identity.user == 0) return;
  // Locked memory is needed to exchange data between GPUs, so a single GPU is not affected.
  if (num_discrete(machine) < 2) return;
  if (*machine.locked_bytes >= kGib) return;
  found.push_back(
      {.level = Level::note,
       .id = "locked-memory",
       .what = fmt::format("a process may lock {} of memory", human_bytes(*machine.locked_bytes)),
       .cost = "libraries that send between GPUs (RCCL, NCCL, MPI) may fail; Hearth's own exchange does not "
               "need more",
       .fix = "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/memlock.conf, then log in "
              "again; docker run --ulimit memlock=-1"});
}

void check_disk(const Machine& machine, Findings& found) {
  if (!machine.free_disk_bytes) return;
  const bool little = *machine.free_disk_bytes < 10 * kGib;
  found.push_back({.level = little ? Level::warning : Level::ok,
                   .id = "disk",
                   .what = fmt::format("{} are free in this folder", human_bytes(*machine.free_disk_bytes)),
                   .cost = little ? "a checkpoint is up to three times as large as the model in float32" : "",
                   .fix = little ? "free some, or --out FOLDER on another disk" : ""});
}

void check_processor(const Machine& machine, Findings& found) {
  if (machine.processor_limit && *machine.processor_limit < machine.num_processors) {
    found.push_back(
        {.level = Level::note,
         .id = "processor-limit",
         .what = fmt::format("the control group gives {:g} of {} processors", *machine.processor_limit,
                             machine.num_processors),
         .cost = "more threads than that slow training down",
         .fix = fmt::format("threads={:.0f}; docker run --cpus", std::max(1.0, *machine.processor_limit))});
  }
  if (machine.numa_balancing.value_or(0) != 0 && machine.num_numa_nodes > 1) {
    found.push_back({.level = Level::warning,
                     .id = "numa-balancing",
                     .what = "the kernel moves memory between NUMA nodes",
                     .cost = "pauses in the middle of steps, while copies to the GPU read that memory",
                     .fix = "echo 0 | sudo tee /proc/sys/kernel/numa_balancing"});
  }
}

}  // namespace

void check_host(const Machine& machine, Findings& found) {
  check_memory(machine, found);
  check_locked(machine, found);
  check_disk(machine, found);
  check_processor(machine, found);
  for (const std::string& file : machine.blocked_files) {
    found.push_back({.level = Level::warning,
                     .id = "blocked-file",
                     .what = fmt::format("/{} does not respond", file),
                     .cost = "the driver behind it hangs; its state is unknown",
                     .fix = "sudo dmesg | tail -50; usually only a restart helps"});
  }
}

}  // namespace hearth::doctor
