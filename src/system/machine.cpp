#include "system/machine.h"

#include <fmt/format.h>
#include <sys/klog.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <sstream>

#include "base/text.h"

namespace hearth::system {
namespace {

constexpr int64_t kKib = 1024;

std::string distribution_in(Tree& tree) {
  std::istringstream lines(tree.text("etc/os-release"));
  constexpr std::string_view kName = "PRETTY_NAME=";
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kName)) continue;
    line.erase(0, kName.size());
    std::erase(line, '"');
    return line;
  }
  return "";
}

/// Returns the kind of container in which the tree's system runs, detected by files that container runtimes
/// create and by the control group of process 1; empty if there is none.
std::string container_in(Tree& tree) {
  if (tree.exists(".dockerenv")) return "docker";
  if (tree.exists("run/.containerenv")) return "podman";
  std::string named = tree.line("run/systemd/container");
  if (!named.empty()) return named;
  const std::string& groups = tree.text("proc/1/cgroup");
  for (const char* name : {"kubepods", "docker", "lxc"}) {
    if (groups.find(name) != std::string::npos) return name == std::string("kubepods") ? "kubernetes" : name;
  }
  return "";
}

/// Returns the environment variables that affect the behavior of GPUs, which GPUs are visible, or where
/// runtimes are found.
std::map<std::string, std::string> read_variables(Tree& tree) {
  constexpr auto kPrefixes = std::to_array<std::string_view>(
      {"HSA_", "HIP_", "ROCR_", "AMD_", "ROCBLAS_", "CUDA_", "NCCL_", "GPU_", "NVIDIA_TF32", "ROCM_"});
  std::map<std::string, std::string> found;
  std::istringstream entries(tree.text("proc/self/environ"));
  for (std::string entry; std::getline(entries, entry, '\0');) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = entry.substr(0, equals);
    if (std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); }))
      found[name] = entry.substr(equals + 1);
  }
  return found;
}

std::map<std::string, std::string> read_parameters(Tree& tree) {
  std::map<std::string, std::string> found;
  const std::string folder = "sys/module/amdgpu/parameters";
  for (const std::string& name : tree.list(folder))
    found[name] = tree.line(fmt::format("{}/{}", folder, name));
  return found;
}

bool is_blocked(Tree& tree, std::string_view module) {
  const std::string folder = "etc/modprobe.d";
  for (const std::string& file : tree.list(folder)) {
    std::istringstream lines(tree.text(fmt::format("{}/{}", folder, file)));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string first, second;
      if (words >> first >> second && first == "blacklist" && second == module) return true;
    }
  }
  return false;
}

/// Returns folders that may contain an installation of ROCm: /opt/rocm-6.4.1, since ROCm 7.14
/// /opt/rocm/core-7.14, and symbolic links to these.
std::vector<std::string> rocm_folders(Tree& tree) {
  std::vector<std::string> folders;
  for (const std::string& name : tree.list("opt")) {
    if (!name.starts_with("rocm")) continue;
    const std::string folder = "opt/" + name;
    folders.push_back(folder);
    for (const std::string& part : tree.list(folder))
      if (part.starts_with("core")) folders.push_back(fmt::format("{}/{}", folder, part));
  }
  return folders;
}

/// Finds installations of ROCm, each of which has a folder with a version file, and HIP libraries of a
/// distribution, whose file names contain the version.
void find_rocm(Tree& tree, std::vector<InstalledRuntime>& found) {
  std::set<std::string> seen;
  for (const std::string& name : rocm_folders(tree)) {
    const std::string folder = tree.resolved(name);
    const std::string version = tree.line(folder + "/.info/version");
    if (!version.empty() && seen.insert(folder).second)
      found.push_back({.name = "ROCm", .version = version, .path = "/" + folder});
  }
  constexpr std::string_view kLibrary = "libamdhip64.so.";
  for (const char* folder : {"usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/local/lib"}) {
    for (const std::string& name : tree.list(folder)) {
      const std::string_view version = std::string_view(name).substr(std::min(name.size(), kLibrary.size()));
      // The file name with one number, "libamdhip64.so.6", is a symbolic link to the file with the full
      // version.
      if (!name.starts_with(kLibrary) || version_numbers(version).size() < 2) continue;
      found.push_back(
          {.name = "HIP", .version = std::string(version), .path = fmt::format("/{}/{}", folder, name)});
    }
  }
}

std::vector<InstalledRuntime> find_runtimes(Tree& tree) {
  std::vector<InstalledRuntime> found;
  find_rocm(tree, found);
  constexpr std::string_view kCuda = "libcuda.so.";
  for (const char* folder : {"usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib/wsl/lib"}) {
    for (const std::string& name : tree.list(folder)) {
      if (!name.starts_with(kCuda) || name == "libcuda.so.1") continue;
      found.push_back({.name = "CUDA driver",
                       .version = name.substr(kCuda.size()),
                       .path = fmt::format("/{}/{}", folder, name)});
    }
  }
  return found;
}

/// Returns the version of NVIDIA's driver from /sys, or from a line such as "NVRM version: NVIDIA UNIX x86_64
/// Kernel Module  580.95.05  ...".
std::string nvidia_version_in(Tree& tree) {
  std::string version = tree.line("sys/module/nvidia/version");
  if (!version.empty()) return version;
  std::istringstream words(tree.line("proc/driver/nvidia/version"));
  for (std::string word; words >> word;)
    if (version_numbers(word).size() >= 2 && word.find("86") == std::string::npos) return word;
  return "";
}

/// Reads the EFI variable SecureBoot, which has four bytes of attributes and then one byte with the value.
std::optional<bool> secure_boot_in(Tree& tree) {
  const std::string& bytes =
      tree.text("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c");
  if (bytes.size() != 5) return std::nullopt;
  return bytes[4] == 1;
}

std::string iommu_setting_in(Tree& tree) {
  std::istringstream words(tree.line("proc/cmdline"));
  std::string setting;
  for (std::string word; words >> word;) {
    const size_t equals = word.find("iommu=");
    if (equals != std::string::npos) setting = word.substr(equals + 6);
  }
  return setting;
}

void read_memory(Tree& tree, Machine& machine) {
  const auto bytes = [&](std::string_view name) {
    return tree.number("proc/meminfo", name).value_or(0) * kKib;
  };
  machine.memory_bytes = bytes("MemTotal");
  machine.available_bytes = bytes("MemAvailable");
  machine.swap_bytes = bytes("SwapTotal");
  machine.huge_page_bytes = bytes("Hugetlb");
  // nullopt for "unlimited".
  machine.locked_bytes = tree.number("proc/self/limits", "Max locked memory");
  // Format of the line: "always [madvise] never"; the current choice is in brackets.
  const std::string choice = tree.line("sys/kernel/mm/transparent_hugepage/enabled");
  const size_t begin = choice.find('['), end = choice.find(']');
  if (begin != std::string::npos && end != std::string::npos)
    machine.transparent_huge_pages = choice.substr(begin + 1, end - begin - 1);
}

void read_limits(Tree& tree, Machine& machine) {
  machine.memory_limit = tree.number("sys/fs/cgroup/memory.max");
  std::istringstream quota(tree.line("sys/fs/cgroup/cpu.max"));
  double microseconds = 0, period = 0;
  if (quota >> microseconds >> period && period > 0) machine.processor_limit = microseconds / period;
  for (const std::string& name : tree.list("sys/devices/system/cpu"))
    if (name.starts_with("cpu") && name.size() > 3 && name[3] >= '0' && name[3] <= '9')
      ++machine.num_processors;
  machine.numa_balancing = tree.number("proc/sys/kernel/numa_balancing");
  for (const std::string& name : tree.list("sys/devices/system/node"))
    if (name.starts_with("node")) ++machine.num_numa_nodes;
}

/// Returns the names of other processes that have compute queues of AMD's driver.
std::vector<std::string> read_gpu_programs(Tree& tree) {
  std::set<std::string> names;
  const std::string self = tree.link_name("proc/self");
  for (const std::string& process : tree.list("sys/class/kfd/kfd/proc")) {
    const std::string name = tree.line("proc/" + process + "/comm");
    if (process != self && !name.empty()) names.insert(name);
  }
  return {names.begin(), names.end()};
}

/// Returns the kernel log. On this machine it is read by klogctl, because reading its device file would
/// block.
std::string read_log(Tree& tree) {
  if (tree.root() != "/") return tree.text("var/log/kern.log");
  constexpr int kReadAll = 3, kSize = 10;
  const int size = klogctl(kSize, nullptr, 0);
  std::string log(static_cast<size_t>(std::clamp(size, 0, 16 << 20)), '\0');
  const int count = klogctl(kReadAll, log.data(), static_cast<int>(log.size()));
  log.resize(static_cast<size_t>(std::max(0, count)));
  return log;
}

/// Text in a line of the kernel log that indicates a kind of event. More specific texts come first.
struct LogPattern {
  std::string_view text;
  LoggedEvent::Kind kind;
};
constexpr std::array kLogPatterns = {
    LogPattern{"device lost from bus", LoggedEvent::Kind::lost},
    LogPattern{"GPU has fallen off the bus", LoggedEvent::Kind::lost},
    LogPattern{"PCI rejects atomics", LoggedEvent::Kind::atomics},
    LogPattern{"NVRM: Xid", LoggedEvent::Kind::xid},
    LogPattern{"GCVM_L2_PROTECTION_FAULT_STATUS", LoggedEvent::Kind::fault},
    LogPattern{"[gfxhub] page fault", LoggedEvent::Kind::fault},
    LogPattern{"amdgpu_job_timedout", LoggedEvent::Kind::timeout},
    LogPattern{"MES failed to respond", LoggedEvent::Kind::timeout},
    LogPattern{"MES might be in unrecoverable state", LoggedEvent::Kind::timeout},
    LogPattern{"GPU reset begin", LoggedEvent::Kind::reset},
    LogPattern{"amdgpu: GPU reset", LoggedEvent::Kind::reset},
    LogPattern{"Direct firmware load for amdgpu/", LoggedEvent::Kind::firmware},
};

void read_events(Tree& tree, Machine& machine) {
  const std::string log = read_log(tree);
  machine.log_was_read = !log.empty();
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const auto sign = std::ranges::find_if(
        kLogPatterns, [&](const LogPattern& one) { return line.find(one.text) != std::string::npos; });
    if (sign != kLogPatterns.end()) machine.events.push_back({sign->kind, shortened(line, 300)});
  }
}

}  // namespace

std::vector<int> version_numbers(std::string_view text) {
  std::vector<int> numbers;
  const size_t begin = text.find_first_of("0123456789");
  if (begin == std::string_view::npos) return numbers;
  text.remove_prefix(begin);
  while (!text.empty()) {
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{}) break;
    numbers.push_back(number);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (!text.starts_with('.')) break;
    text.remove_prefix(1);
  }
  return numbers;
}

Machine read_machine(Tree& tree) {
  Machine machine{.kernel = tree.line("proc/sys/kernel/osrelease"),
                  .distribution = distribution_in(tree),
                  .container = container_in(tree),
                  .gpus = list_pci_gpus(tree),
                  .identity = read_identity(tree)};
  machine.processor = tree.value("proc/cpuinfo", "model name");
  if (machine.processor.starts_with(':')) machine.processor = trimmed(machine.processor.substr(1));
  machine.wsl = tree.exists("dev/dxg") || machine.kernel.find("microsoft") != std::string::npos;
  machine.files = list_device_files(tree, machine.identity);
  machine.amdgpu_version = tree.line("sys/module/amdgpu/version");
  machine.amdgpu_parameters = read_parameters(tree);
  machine.amdgpu_is_blocked = is_blocked(tree, "amdgpu");
  machine.nvidia_version = nvidia_version_in(tree);
  machine.runtimes = find_runtimes(tree);
  machine.variables = read_variables(tree);
  machine.secure_boot = secure_boot_in(tree);
  machine.has_iommu = !tree.list("sys/kernel/iommu_groups").empty();
  machine.iommu_setting = iommu_setting_in(tree);
  read_memory(tree, machine);
  read_limits(tree, machine);
  machine.gpu_programs = read_gpu_programs(tree);
  read_events(tree, machine);
  machine.blocked_files = tree.blocked();
  return machine;
}

}  // namespace hearth::system
