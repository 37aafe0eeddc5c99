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

/// Returns the numbers of a version, for comparison: {6, 18, 2} for "6.18.2-1-generic"; empty if
/// there are none.
std::vector<int> version_numbers(std::string_view text);

/// An installed runtime of AMD or NVIDIA.
struct InstalledRuntime {
  std::string name;     ///< "ROCm", "HIP", "CUDA driver"
  std::string version;  ///< empty: unknown
  std::string path;     ///< "/opt/rocm-6.4.1"
};

/// A GPU event in the kernel log.
struct LoggedEvent {
  enum class Kind : uint8_t { reset, fault, timeout, lost, atomics, firmware, xid };
  Kind kind = Kind::reset;
  std::string line;  ///< line of the log
};

/// Properties of a machine that affect training, read from files.
struct Machine {
  std::string kernel;        ///< "6.14.0-29-generic"
  std::string distribution;  ///< "Ubuntu 24.04.3 LTS"
  std::string processor;
  std::string container;  ///< "docker", "podman", "lxc", "kubernetes", "container"; empty: none
  std::vector<PciGpu> gpus;
  std::vector<DeviceFile> files;
  Identity identity;

  std::string amdgpu_version;  ///< version of an out-of-tree module; empty: the kernel's built-in driver
  std::map<std::string, std::string> amdgpu_parameters;  ///< module parameters: "runpm": "-1"
  std::string nvidia_version;                            ///< version of the kernel module; empty: not loaded

  std::vector<InstalledRuntime> runtimes;
  std::map<std::string, std::string> variables;  ///< environment variables that affect GPUs
  std::string iommu_setting;                     ///< iommu= of the kernel command line: "pt"
  std::string transparent_huge_pages;            ///< "madvise"
  std::vector<std::string> gpu_programs;         ///< names of other programs with compute queues on AMD GPUs
  std::vector<LoggedEvent> events;
  /// Files that could not be read within the timeout.
  std::vector<std::string> blocked_files;

  int64_t memory_bytes = 0, available_bytes = 0, swap_bytes = 0;
  int64_t huge_page_bytes = 0;            ///< reserved for huge pages
  std::optional<int64_t> locked_bytes;    ///< RLIMIT_MEMLOCK; nullopt: unlimited
  std::optional<int64_t> memory_limit;    ///< memory limit of the control group, in bytes
  std::optional<double> processor_limit;  ///< CPU limit of the control group, in CPUs
  std::optional<int64_t> free_disk_bytes;
  std::optional<int64_t> numa_balancing;
  int num_numa_nodes = 0;
  int num_processors = 0;

  std::optional<bool> secure_boot;
  bool wsl = false;
  bool has_iommu = false;
  bool amdgpu_is_blocked = false;  ///< True if a line in /etc/modprobe.d blacklists it
  bool log_was_read = false;
};

/// Reads all properties. With root "/" the kernel log comes from klogctl, otherwise from var/log/kern.log.
Machine read_machine(Tree& tree);

}  // namespace hearth::system
