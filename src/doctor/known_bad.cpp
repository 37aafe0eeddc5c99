#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/yaml.h"
#include "doctor/checks.h"
#include "doctor/known_bad_text.h"

namespace hearth::doctor {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

bool has_word(const std::string& text, const std::string& word) {
  const std::vector<std::string> words = words_of(text);
  return std::ranges::find(words, word) != words.end();
}

/// Compares two versions: negative if a is lower, 0 if they are equal, positive if a is higher. Missing
/// numbers count as 0 ("6.18" is 6.18.0).
int compare(std::vector<int> a, std::vector<int> b) {
  const size_t size = std::max(a.size(), b.size());
  a.resize(size);
  b.resize(size);
  return a < b ? -1 : a > b ? 1 : 0;
}

/// True if a version is within bounds such as ">=6.18.2 <6.19"; false for an unknown version.
bool is_within(const std::string& version, const std::string& bounds) {
  const std::vector<int> numbers = system::version_numbers(version);
  if (numbers.empty()) return false;
  return std::ranges::all_of(words_of(bounds), [&](const std::string& bound) {
    const int order = compare(numbers, system::version_numbers(bound));
    if (bound.starts_with(">=")) return order >= 0;
    if (bound.starts_with("<")) return order < 0;
    internal_error("expected >= or < in known_bad.yaml, got '{}'", bound);
  });
}

bool has_runtime(const Machine& machine, const std::string& bounds) {
  return std::ranges::any_of(machine.runtimes, [&](const system::InstalledRuntime& runtime) {
    return runtime.name != "CUDA driver" && is_within(runtime.version, bounds);
  });
}

bool has_firmware(const PciGpu& gpu, const std::string& condition) {
  const std::vector<std::string> words = words_of(condition);
  const auto version = gpu.firmware.find(words.at(0));
  if (version == gpu.firmware.end()) return false;
  return std::any_of(words.begin() + 1, words.end(), [&](const std::string& word) {
    return std::stoll(word, nullptr, 0) == version->second;
  });
}

/// True if the module parameter named in the condition ("cwsr_enable 0") is known and has a value other than
/// the one in the condition.
bool lacks_parameter(const Machine& machine, const std::string& condition) {
  const std::vector<std::string> words = words_of(condition);
  const auto set = machine.amdgpu_parameters.find(words.at(0));
  return set != machine.amdgpu_parameters.end() && set->second != words.at(1);
}

bool has_variable(const Machine& machine, const std::string& name) {
  const auto set = machine.variables.find(name);
  return set != machine.variables.end() && !set->second.empty() && set->second != "0";
}

bool holds(const YAML::Node& entry, const Machine& machine, const PciGpu& gpu) {
  for (const auto& field : entry) {
    const auto name = field.first.as<std::string>(), value = field.second.as<std::string>();
    if (name == "gpu" && !has_word(value, gpu.architecture)) return false;
    if (name == "kernel" && !is_within(machine.kernel, value)) return false;
    if (name == "rocm" && !has_runtime(machine, value)) return false;
    if (name == "nvidia" && !is_within(machine.nvidia_version, value)) return false;
    if (name == "firmware" && !has_firmware(gpu, value)) return false;
    if (name == "parameter" && !lacks_parameter(machine, value)) return false;
    if (name == "variable" && !has_variable(machine, value)) return false;
    if (name == "gpus" && std::ssize(machine.gpus) < std::stoll(value)) return false;
    if (name == "wsl" && !machine.wsl) return false;
  }
  return true;
}

Level level_in(const std::string& name) {
  for (const Level level : {Level::note, Level::warning, Level::broken})
    if (level_name(level) == name) return level;
  internal_error("expected note, warning or broken in known_bad.yaml, got '{}'", name);
}

}  // namespace

void check_known_bad(const Machine& machine, Findings& found) {
  const YAML::Node table = parse_yaml(kKnownBad, "known_bad.yaml", {.name = "table", .advice = ""});
  for (const PciGpu& gpu : machine.gpus) {
    const size_t before = found.size();
    for (const YAML::Node& entry : table) {
      if (!holds(entry, machine, gpu)) continue;
      const auto text = [&](const char* name) { return entry[name].as<std::string>(); };
      found.push_back({.level = level_in(text("level")),
                       .id = "known-bad",
                       .subject = gpu.pci_address,
                       .what = fmt::format("{} ({})", text("what"), text("source")),
                       .cost = text("cost"),
                       .fix = text("fix")});
    }
    if (found.size() > before || machine.kernel.empty()) continue;
    found.push_back(
        {.id = "known-bad",
         .subject = gpu.pci_address,
         .what = fmt::format("no known problems of {} with Linux {} and the installed software",
                             gpu.architecture.empty() ? "it" : gpu.architecture, machine.kernel)});
  }
}

}  // namespace hearth::doctor
