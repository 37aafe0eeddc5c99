#include "doctor/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backend/cpu/simd/simd.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/version.h"
#include "exec/device/gpu_choice.h"
#include "io/report.h"

namespace hearth::doctor {
namespace {

using nlohmann::ordered_json;
using system::Machine;
using system::PciGpu;

#if defined(__clang__)
constexpr const char* kCompiler = "";  // clang's version begins with its name.
#else
constexpr const char* kCompiler = "g++ ";
#endif

std::string make_of(const PciGpu& gpu) { return gpu.vendor == PciGpu::Vendor::amd ? "AMD" : "NVIDIA"; }

std::string modules_line(const Program& program) {
  std::string text;
  for (const gpu::Runtime& runtime : program.runtimes) {
    text +=
        runtime.architectures.empty()
            ? fmt::format("{}, not opened: {}; ", runtime.name, runtime.fault)
            : fmt::format("{} {} with kernels for {} and matmuls of {}; ", runtime.name, runtime.version,
                          runtime.architectures, runtime.library.empty() ? "its own alone" : runtime.library);
  }
  return text.empty() ? "none but emulated ones" : text.substr(0, text.size() - 2);
}

/// What stands above the findings, as names and values.
std::vector<std::pair<std::string, std::string>> facts(const Machine& machine, const Program* program) {
  std::vector<std::pair<std::string, std::string>> rows;
  if (program != nullptr) {
    rows.emplace_back("hearth", fmt::format("{}, compiled by {}; kernels for {}, {} threads", kVersion,
                                            __VERSION__, cpu::simd().isa, num_available_cpus()));
    rows.emplace_back("modules", modules_line(*program));
  } else {
    rows.emplace_back("hearth", kVersion);
  }
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) rows.emplace_back(name, value);
  };
  add("system", machine.distribution);
  add("kernel", machine.kernel.empty() ? "" : "Linux " + machine.kernel);
  add("processor", machine.processor);
  add("container", machine.container);
  return rows;
}

std::string indent(const char* name, const std::string& text) {
  return text.empty() ? "" : fmt::format("           {:<6} {}\n", name, text);
}

std::string line_of(const Finding& finding) {
  std::string line = fmt::format("{:<8} {}: {}{}\n", level_name(finding.level), finding.id,
                                 finding.subject.empty() ? "" : finding.subject + ": ", finding.what);
  if (finding.level == Level::ok) return line;
  return line + indent("costs:", finding.cost) + indent("fix:", finding.fix) +
         indent("see:", page_of(finding));
}

std::string verdict(const std::vector<Finding>& findings) {
  const auto count = [&](Level level) { return std::ranges::count(findings, level, &Finding::level); };
  const auto broken = count(Level::broken), warnings = count(Level::warning);
  if (broken + warnings == 0)
    return "nothing is wrong with this machine, as far as it can be seen from here\n";
  return fmt::format("{} broken, {} warning{}, {} note{}\n", broken, warnings, warnings == 1 ? "" : "s",
                     count(Level::note), count(Level::note) == 1 ? "" : "s");
}

std::vector<Finding> ordered(std::vector<Finding> findings) {
  std::ranges::stable_sort(findings, {}, &Finding::level);
  return findings;
}

ordered_json json_of(const PciGpu& gpu) {
  ordered_json json = {{"address", gpu.pci_address},   {"vendor", make_of(gpu)},
                       {"device_id", gpu.device_id},   {"name", gpu.name},
                       {"driver", gpu.driver},         {"architecture", gpu.architecture},
                       {"integrated", gpu.integrated}, {"memory_bytes", gpu.memory_bytes}};
  if (const system::PciLink* link = gpu.slowest_link())
    json["link"] = {{"width", link->width}, {"gigatransfers", link->best_speed()}};
  if (!gpu.firmware.empty()) json["firmware"] = gpu.firmware;
  return json;
}

}  // namespace

std::string to_text(const Machine& machine, const Program* program, const std::vector<Finding>& findings) {
  std::string text;
  for (const auto& [name, value] : facts(machine, program)) text += fmt::format("{:<10} {}\n", name, value);
  text += '\n';
  for (const Finding& finding : ordered(findings)) text += line_of(finding);
  return printable(text + '\n' + verdict(findings));
}

std::string to_json(const Machine& machine, const Program* program, const std::vector<Finding>& findings) {
  ordered_json json = {{"hearth", kVersion}, {"machine", ordered_json::object()}};
  for (const auto& [name, value] : facts(machine, program))
    if (name != "hearth") json["machine"][name] = printable(value);
  json["gpus"] = ordered_json::array();
  for (const PciGpu& gpu : machine.gpus) json["gpus"].push_back(json_of(gpu));
  json["findings"] = ordered_json::array();
  for (const Finding& finding : findings) {
    json["findings"].push_back({{"level", level_name(finding.level)},
                                {"id", finding.id},
                                {"subject", finding.subject},
                                {"what", printable(finding.what)},
                                {"cost", finding.cost},
                                {"fix", finding.fix},
                                {"page", page_of(finding)}});
  }
  json["status"] = exit_status(findings);
  return json.dump(1) + "\n";
}

}  // namespace hearth::doctor
