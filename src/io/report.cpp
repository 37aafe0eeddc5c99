#include "io/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace hearth::io {
namespace {

constexpr const char* kStyle = R"css(
:root{color-scheme:light dark;--bg:#fbfaf8;--gpu:#fff;--ink:#1d1b18;--soft:#77716a;--line:#e6e1da;--good:#2f855a;--bad:#c53030}
@media(prefers-color-scheme:dark){:root{--bg:#171614;--gpu:#211f1c;--ink:#ece8e1;--soft:#a39c92;--line:#3a3631;--good:#68d391;--bad:#fc8181}}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px}
h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:34px 0 12px}
.gpus{display:grid;grid-template-columns:repeat(auto-fill,minmax(170px,1fr));gap:10px;margin-top:16px}
.gpu,.chart,.scroll,figure{background:var(--gpu);border:1px solid var(--line);border-radius:10px}
.gpu{padding:10px 14px}.gpu b{display:block;font-size:19px;overflow-wrap:anywhere}.gpu span{color:var(--soft);font-size:13px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:14px}
.chart{width:100%;height:auto}.chart text,.arena text{font-family:system-ui,sans-serif}.title{font-size:15px;font-weight:600;fill:var(--ink)}
.tick{font-size:12px;fill:var(--soft)}.grid{stroke:var(--line)}
.scroll{overflow:auto;padding:12px}table{border-collapse:collapse;font-size:13px}
td,th{padding:5px 8px;text-align:center;min-width:34px}th{font-weight:500;color:var(--soft)}th.row{text-align:right}
.samples{display:grid;grid-template-columns:repeat(auto-fill,minmax(116px,1fr));gap:12px}
figure{margin:0;padding:8px;text-align:center;font-size:13px}figure img{width:96px;height:96px;image-rendering:pixelated;border-radius:6px}
.strips{display:flex;flex-wrap:wrap;gap:10px}.strips figure{text-align:left}.strips img{width:auto;height:auto;max-width:min(360px,30vw);min-width:96px;margin-right:6px}
.command{font-family:ui-monospace,monospace;font-size:13px;color:var(--soft);overflow-wrap:anywhere}.subtitle{color:var(--soft)}
.legend{display:flex;flex-wrap:wrap;gap:4px 14px;margin-bottom:10px;font-size:13px}.legend i{display:inline-block;width:12px;height:12px;border:1px solid var(--line);border-radius:3px;margin-right:5px;vertical-align:-1px}
.scales{position:relative}.scales label{position:absolute;right:14px;bottom:6px;font-size:12px;color:var(--soft)}.scales .log,.scales:has(:checked) .linear{display:none}.scales:has(:checked) .log{display:block}
.right{color:var(--good)}.wrong{color:var(--bad);font-weight:600}.arena svg{max-width:100%;height:auto}
)css";

std::string summary_gpus(const ReportData& data) {
  std::string html = "<div class='gpus'>";
  for (const auto& [name, value] : data.summary) {
    html +=
        fmt::format("<div class='gpu'><span>{}</span><b>{}</b></div>", escape_html(name), escape_html(value));
  }
  return html + "</div>";
}

/// Returns the loss chart, on a linear and on a log scale if all losses are positive; a check box in plain
/// CSS selects one.
std::string loss_chart(const ReportData& data) {
  const std::vector<Series> series = {{"validation", "#dd6b20", data.eval_loss},
                                      {"training", "#3182ce", data.loss}};
  std::string linear = line_chart("Loss", series);
  const auto is_positive = [](const CurvePoint& point) { return point.value > 0; };
  if (!std::ranges::all_of(data.loss, is_positive) || !std::ranges::all_of(data.eval_loss, is_positive))
    return linear;
  return fmt::format(
      "<div class='scales'><div class='linear'>{}</div><div class='log'>{}</div><label><input "
      "type='checkbox'>log scale</label></div>",
      linear, line_chart("Loss", series, "step", Scale::log));
}

std::string charts(const ReportData& data) {
  const std::string score =
      data.score.points.empty()
          ? ""
          : line_chart(data.score.title, {{data.score.name, "#38a169", data.score.points}});
  const std::string rate = data.learning_rate.empty()
                               ? ""
                               : line_chart("Learning rate", {{"rate", "#805ad5", data.learning_rate}});
  std::string html = "<div class='charts'>" + loss_chart(data) + score + rate;
  for (const std::string& chart : data.charts) html += chart;
  return html + "</div>";
}

std::string gpu_charts(const ReportData& data) {
  if (data.gpu_charts.empty()) return "";
  std::string html = "<h2>GPUs</h2><div class='charts'>";
  for (const Chart& chart : data.gpu_charts) html += line_chart(chart.title, chart.series);
  return html + "</div>";
}

std::string confusion_table(const ReportData& data) {
  const size_t n = data.class_names.size();
  if (n == 0 || data.confusion.size() != n * n || n > 100) return "";
  std::string html =
      "<h2>Confusion matrix</h2><div class='scroll'><table><tr><th class='row'>true \\ predicted</th>";
  for (const std::string& name : data.class_names) html += fmt::format("<th>{}</th>", escape_html(name));
  html += "</tr>";
  for (size_t i = 0; i < n; ++i) {
    const auto row = data.confusion.begin() + static_cast<std::ptrdiff_t>(i * n);
    int64_t total = 0;
    for (size_t j = 0; j < n; ++j) total += row[static_cast<std::ptrdiff_t>(j)];
    html += fmt::format("<tr><th class='row'>{}</th>", escape_html(data.class_names[i]));
    for (size_t j = 0; j < n; ++j) {
      const int64_t count = row[static_cast<std::ptrdiff_t>(j)];
      const double share = total == 0 ? 0 : static_cast<double>(count) / static_cast<double>(total);
      const char* color = i == j ? "56,161,105" : "229,62,62";
      html += fmt::format("<td style='background:rgba({},{:.2f})'>{}</td>", color,
                          count == 0 ? 0 : 0.12 + 0.75 * share, count);
    }
    html += "</tr>";
  }
  return html + "</table></div>";
}

std::string sample_grid(const ReportData& data) {
  if (data.samples.empty()) return "";
  std::string html = "<h2>Sample predictions</h2><div class='samples'>";
  for (const SamplePrediction& sample : data.samples) {
    const bool right = sample.truth == sample.predicted;
    html += fmt::format(
        "<figure><img alt='{}' src='data:image/png;base64,{}'><div class='{}'>{} {:.0f}%</div>{}</figure>",
        escape_html(sample.truth), base64(sample.png), right ? "right" : "wrong",
        escape_html(sample.predicted), 100 * sample.probability,
        right ? "" : fmt::format("<div>is {}</div>", escape_html(sample.truth)));
  }
  return html + "</div>";
}

std::string tables(const ReportData& data) {
  std::string html;
  for (const ReportTable& table : data.tables) {
    html += fmt::format("<h2>{}</h2><div class='scroll'><table><tr>", escape_html(table.title));
    for (const std::string& name : table.header) html += fmt::format("<th>{}</th>", escape_html(name));
    html += "</tr>";
    for (const std::vector<std::string>& row : table.rows) {
      html += "<tr>";
      for (const std::string& cell : row) html += fmt::format("<td>{}</td>", escape_html(cell));
      html += "</tr>";
    }
    html += "</table></div>";
  }
  return html;
}

std::string strips(const ReportData& data) {
  if (data.strips.empty()) return "";
  std::string html = fmt::format("<h2>{}</h2>", escape_html(data.strips_title));
  if (!data.legend.empty()) html += "<div class='legend'>";
  for (const LegendEntry& entry : data.legend)
    html += fmt::format("<span><i style='background:{}'></i>{}</span>", escape_html(entry.color),
                        escape_html(entry.name));
  html += data.legend.empty() ? "<div class='strips'>" : "</div><div class='strips'>";
  for (const ImageStrip& strip : data.strips) {
    html += "<figure>";
    for (const std::string& image : strip.images)
      html += fmt::format("<img alt='' src='data:image/{};base64,{}'>",
                          image.starts_with("\xFF\xD8") ? "jpeg" : "png", base64(image));
    html += fmt::format("<div>{}</div></figure>", escape_html(strip.caption));
  }
  return html + "</div>";
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
  }
  return out;
}

std::string make_report(const ReportData& data) {
  std::string html =
      "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
      "content='width=device-width'><title>" +
      escape_html(data.title) + "</title><style>" + kStyle + "</style></head><body><main><h1>" +
      escape_html(data.title) + "</h1>";
  if (!data.subtitle.empty()) html += "<div class='subtitle'>" + escape_html(data.subtitle) + "</div>";
  if (!data.command.empty()) html += "<div class='command'>" + escape_html(data.command) + "</div>";
  html += summary_gpus(data) + "<h2>Curves</h2>" + charts(data) + tables(data) + confusion_table(data) +
          sample_grid(data) + strips(data) + gpu_charts(data);
  if (!data.arena_svg.empty()) {
    html += "<h2>The arena over one training step</h2><div class='scroll arena'>" + data.arena_svg + "</div>";
  }
  return html + "</main></body></html>\n";
}

}  // namespace hearth::io
