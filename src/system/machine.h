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

/// Returns the numbers in a version, for comparisons: {6, 18, 2} for "6.18.2-1-generic"; empty if there are
/// none.
std::vector<int> version_numbers(std::string_view text);

/// An installed GPU runtime of AMD or NVIDIA.
struct InstalledRuntime {
  std::string name;     ///< "ROCm", "HIP", "CUDA driver"
  std::string version;  ///< version number; empty: unknown
  std::string path;     ///< "/opt/rocm-6.4.1"
};

/// A GPU event in the kernel log.
struct LoggedEvent {
  enum class Kind : uint8_t { reset, fault, timeout, lost, atomics, firmware, xid };
  Kind kind = Kind::reset;
  std::string line;  ///< full line of the log
};

/// Properties of a machine that affect training, read from files.
struct Machine {
  std::string kernel;        ///< release of the kernel: "6.14.0-29-generic"
  std::string distribution;  ///< "Ubuntu 24.04.3 LTS"
  std::string processor;
  std::string container;  ///< "docker", "podman", "lxc", "kubernetes", "container"; empty: none
  std::vector<PciGpu> gpus;
  std::vector<DeviceFile> files;
  Identity identity;

  /// Version of an amdgpu module built outside the kernel; empty: the kernel's own module.
  std::string amdgpu_version;
  /// Parameters of the module by name: "runpm" has the value "-1".
  std::map<std::string, std::string> amdgpu_parameters;
  std::string nvidia_version;  ///< version of NVIDIA's kernel module; empty: not loaded

  std::vector<InstalledRuntime> runtimes;
  std::map<std::string, std::string> variables;  ///< environment variables that affect GPUs
  std::string iommu_setting;                     ///< value of iommu= on the kernel command line: "pt"
  std::string transparent_huge_pages;            ///< current setting: "always", "madvise" or "never"
  std::vector<std::string> gpu_programs;  ///< names of other programs that have compute queues on AMD GPUs
  std::vector<LoggedEvent> events;
  /// Files that could not be read within the timeout.
  std::vector<std::string> blocked_files;

  int64_t memory_bytes = 0, available_bytes = 0, swap_bytes = 0;
  int64_t huge_page_bytes = 0;            ///< memory reserved for huge pages
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
  bool amdgpu_is_blocked = false;  ///< True if a file in /etc/modprobe.d blacklists amdgpu
  bool log_was_read = false;
};

/// Reads all properties of a machine. The kernel log is read by klogctl if the root is "/", otherwise from
/// var/log/kern.log.
Machine read_machine(Tree& tree);

}  // namespace hearth::system
