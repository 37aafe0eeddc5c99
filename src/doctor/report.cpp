#include "doctor/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "backend/cpu/simd/simd.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/version.h"
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

std::string modules_line(const Program& program) {
  std::string text;
  for (const gpu::Runtime& runtime : program.runtimes) {
    text +=
        runtime.architectures.empty()
            ? fmt::format("{}, not opened: {}; ", runtime.name, runtime.fault)
            : fmt::format("{} {} with kernels for {} and matmuls of {}; ", runtime.name, runtime.version,
                          runtime.architectures, runtime.library.empty() ? "its own alone" : runtime.library);
  }
  return text.empty() ? "only emulated GPUs" : text.substr(0, text.size() - 2);
}

/// Returns rows (name, value) about machine and program, which are shown before the findings.
std::vector<std::pair<std::string, std::string>> facts(const Machine& machine, const Program* program) {
  std::vector<std::pair<std::string, std::string>> rows;
  if (program != nullptr) {
    rows.emplace_back("hearth", fmt::format("{}, compiled by {}{}; kernels for {}, {} threads", kVersion,
                                            kCompiler, __VERSION__, cpu::simd().isa, num_available_cpus()));
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
  if (broken + warnings == 0) return "no problems found on this machine\n";
  return fmt::format("{} broken, {} warning{}, {} note{}\n", broken, warnings, warnings == 1 ? "" : "s",
                     count(Level::note), count(Level::note) == 1 ? "" : "s");
}

std::vector<Finding> ordered(std::vector<Finding> findings) {
  std::ranges::stable_sort(findings, {}, &Finding::level);
  return findings;
}

ordered_json json_of(const PciGpu& gpu) {
  ordered_json json = {{"address", gpu.pci_address},   {"vendor", system::vendor_name(gpu.vendor)},
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

namespace {

constexpr std::string_view kStyle = R"(<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: 0.3rem 0.8rem 0.3rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd; }
.ok { color: #2a7d2a; } .note { color: #555; } .warning { color: #a66300; font-weight: 600; } .broken { color: #b00020; font-weight: 600; }
code { font-size: 90%; } .charts { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; } .chart { width: 100%; height: auto; }
.tick { font-size: 12px; fill: #777; } .grid { stroke: #ddd; }
</style>)";

/// Formats an HTML table. The cells must be valid HTML.
std::string html_table(const std::vector<std::string>& head,
                       const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<table><tr>";
  for (const std::string& cell : head) html += "<th>" + cell + "</th>";
  html += "</tr>\n";
  for (const std::vector<std::string>& row : rows) {
    html += "<tr>";
    for (const std::string& cell : row) html += "<td>" + cell + "</td>";
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string html_findings(const std::vector<Finding>& findings) {
  std::vector<std::vector<std::string>> rows;
  std::vector<Finding> worst_first = findings;
  std::ranges::stable_sort(worst_first, std::greater{}, &Finding::level);
  for (const Finding& finding : worst_first) {
    const std::string fix =
        finding.fix.empty() ? "" : fmt::format("<br><code>{}</code>", io::escape_html(finding.fix));
    const std::string cost = finding.cost.empty() ? "" : fmt::format("<br>{}", io::escape_html(finding.cost));
    rows.push_back({fmt::format("<span class=\"{0}\">{0}</span>", level_name(finding.level)),
                    io::escape_html(finding.id), io::escape_html(finding.subject),
                    fmt::format("{}{}{}", io::escape_html(finding.what), cost, fix)});
  }
  return html_table({"", "what", "GPU", "found"}, rows);
}

std::string html_figures(const std::vector<Figure>& figures) {
  std::vector<std::vector<std::string>> rows;
  for (const Figure& figure : figures) {
    const bool known = figure.predicted > 0;
    rows.push_back({io::escape_html(figure.gpu), io::escape_html(figure.name),
                    fmt::format("{:.1f} {}", figure.value, figure.unit),
                    known ? fmt::format("{:.1f} {}", figure.predicted, figure.unit) : "unknown",
                    known ? fmt::format("{:.0f}%", 100 * figure.value / figure.predicted) : ""});
  }
  return html_table({"GPU", "what", "measured", "predicted", ""}, rows);
}

io::Series seed_of_split(const std::vector<LoadSample>& load, const char* name, const char* color,
                         const std::function<std::optional<double>(const LoadSample&)>& value) {
  io::Series series{.name = name, .color = color, .points = {}};
  for (const LoadSample& sample : load)
    if (const std::optional<double> found = value(sample))
      series.points.push_back({static_cast<int64_t>(sample.seconds), *found});
  return series;
}

std::string html_load(const std::vector<LoadSample>& load) {
  const std::vector<io::Series> all = {
      seed_of_split(
          load, "TFLOP/s", "#1f77b4",
          [](const LoadSample& s) { return s.teraflops > 0 ? std::optional(s.teraflops) : std::nullopt; }),
      seed_of_split(load, "temperature (C)", "#d62728", [](const LoadSample& s) { return s.celsius; }),
      seed_of_split(load, "power (W)", "#ff7f0e", [](const LoadSample& s) { return s.watts; }),
      seed_of_split(load, "core clock (MHz)", "#2ca02c", [](const LoadSample& s) { return s.megahertz; })};
  std::string html;
  for (const io::Series& series : all)
    if (series.points.size() > 1) html += io::line_chart("", {series}, "seconds");
  return html.empty() ? "" : "<div class=\"charts\">" + html + "</div>\n";
}

}  // namespace

std::string to_page(const Machine& machine, const Program* program, const std::vector<Finding>& findings,
                    const DeepResult& deep) {
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>hearth doctor</title>\n";
  html += kStyle;
  html += "</head><body>\n<h1>hearth doctor</h1>\n";
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : facts(machine, program)) rows.push_back({name, io::escape_html(value)});
  html += html_table({"machine", ""}, rows);
  html += fmt::format("<p>{}</p>\n<h2>Findings</h2>\n{}", verdict(findings), html_findings(findings));
  if (!deep.figures.empty()) html += "<h2>Figures</h2>\n" + html_figures(deep.figures);
  for (size_t i = 0; i < deep.load.size(); ++i) {
    const std::string charts = html_load(deep.load[i]);
    if (!charts.empty())
      html += fmt::format("<h2>Steady load: {}</h2>\n{}", io::escape_html(deep.gpus[i]), charts);
  }
  return html + "</body></html>\n";
}

}  // namespace hearth::doctor
