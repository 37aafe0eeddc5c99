#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "system/device_file.h"
#include "system/pci_gpu.h"
#include "system/tree.h"

namespace hearth::system {

/// A version as numbers, for comparing: {6, 18, 2} of "6.18.2-1-generic". Empty of a text without one.
std::vector<int> version_numbers(std::string_view text);

/// A runtime of AMD's or NVIDIA's that is installed.
struct InstalledRuntime {
  std::string name;     ///< "ROCm", "HIP", "CUDA driver"
  std::string version;  ///< empty: not known
  std::string path;     ///< "/opt/rocm-6.4.1"
};

/// Something that the kernel's log says of GPUs.
struct LoggedEvent {
  enum class Kind : uint8_t { reset, fault, timeout, lost, atomics, firmware, xid };
  Kind kind = Kind::reset;
  std::string line;  ///< as the kernel wrote it
};

/// Everything that decides whether a machine can train, as its files show it.
struct Machine {
  std::string kernel;        ///< "6.14.0-29-generic"
  std::string distribution;  ///< "Ubuntu 24.04.3 LTS"
  std::string processor;
  std::string container;  ///< "docker", "podman", "lxc", "kubernetes", "container"; empty: none
  std::vector<PciGpu> gpus;
  std::vector<DeviceFile> files;
  Identity identity;

  std::string amdgpu_version;  ///< of a module from outside of the kernel; empty: the kernel's own
  std::map<std::string, std::string> amdgpu_parameters;  ///< "runpm": "-1"
  std::string nvidia_version;                            ///< of the kernel's module; empty: not loaded

  std::vector<InstalledRuntime> runtimes;
  std::map<std::string, std::string> variables;  ///< of the environment: those that change what GPUs do
  std::string iommu_setting;                     ///< of the kernel's command line: "pt"
  std::string transparent_huge_pages;            ///< "madvise"
  std::vector<std::string> gpu_programs;         ///< names of other programs that compute on AMD's GPUs
  std::vector<LoggedEvent> events;
  std::vector<std::string> blocked_files;

  int64_t memory_bytes = 0, available_bytes = 0, swap_bytes = 0;
  int64_t huge_page_bytes = 0;            ///< set aside, for nobody else
  std::optional<int64_t> locked_bytes;    ///< that a process may lock in memory; nothing: no limit
  std::optional<int64_t> memory_limit;    ///< of the control group
  std::optional<double> processor_limit;  ///< of the control group, in processors
  std::optional<int64_t> free_disk_bytes;
  std::optional<int64_t> numa_balancing;
  int num_numa_nodes = 0;
  int num_processors = 0;

  std::optional<bool> secure_boot;
  bool wsl = false;
  bool has_iommu = false;
  bool amdgpu_is_blocked = false;  ///< by a line of /etc/modprobe.d
  bool log_was_read = false;
};

/// Reads it all. On the machine itself (root "/") the kernel's log is asked for, else var/log/kern.log is
/// read.
Machine read_machine(Tree& tree);

}  // namespace hearth::system
