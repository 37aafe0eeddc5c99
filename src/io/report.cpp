#include "io/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "io/page_style.h"

namespace hearth::io {
namespace {

/// Rules of the report alone, which follow those of page_style().
constexpr const char* kStyle = R"css(
.samples{display:grid;grid-template-columns:repeat(auto-fill,minmax(116px,1fr));gap:12px}
.samples figure{text-align:center}.samples img{width:96px;height:96px;image-rendering:pixelated;border-radius:6px}
.strips{display:flex;flex-wrap:wrap;gap:10px}.strips img{max-width:min(360px,30vw);min-width:96px;margin-right:6px}
.scales{position:relative}.scales label{position:absolute;right:14px;bottom:6px;font-size:12px;color:var(--soft)}
.scales .log,.scales:has(:checked) .linear{display:none}.scales:has(:checked) .log{display:block}
.matrix th.row{position:sticky;left:0;background:var(--panel)}.matrix td{line-height:1.2}.matrix small{display:block;font-size:11px;opacity:.8}
.sortable td:first-child{text-align:left}.sortable button{all:unset;cursor:pointer}.sortable button:focus-visible{outline:2px solid var(--accent)}
[aria-sort] button{color:var(--ink)}[aria-sort=ascending] button::after{content:' \25b2'}[aria-sort=descending] button::after{content:' \25bc'}
.text{white-space:pre-wrap;overflow-wrap:anywhere;font-family:var(--mono)}.texts{display:grid;gap:10px}.texts .soft{color:var(--soft)}.text mark{background:rgba(56,161,105,.3);color:inherit}
.plot .chart{border:0}.plot .legend{padding:0 14px}
@media(max-width:600px){.scales label{display:block;position:static;padding:0 14px;text-align:right}}
.arena text{font-family:var(--sans)}.arena svg{max-width:100%;height:auto}
)css";

/// Sorts a table by the column whose heading is selected: numbers by value, cells without a value last.
constexpr std::string_view kScript = R"js(
for(const table of document.querySelectorAll('table.sortable')){
const rows=[...table.rows].slice(1);
[...table.rows[0].cells].forEach((head,column)=>{
const button=document.createElement('button');button.append(...head.childNodes);head.append(button);
button.onclick=()=>{
const sign=head.getAttribute('aria-sort')=='ascending'?-1:1;
for(const other of table.rows[0].cells)other.removeAttribute('aria-sort');
head.setAttribute('aria-sort',sign>0?'ascending':'descending');
const cell=row=>row.cells[column].textContent,isText=rows.some(row=>cell(row)!='-'&&isNaN(parseFloat(cell(row))));
rows.sort((a,b)=>{const x=cell(a),y=cell(b);
if(x=='-'||y=='-')return (x=='-')-(y=='-');
return sign*(isText?x.localeCompare(y):parseFloat(x)-parseFloat(y))});
table.tBodies[0].append(...rows)}})}
)js";
/// SHA-256 of kScript in base64, by which the content security policy permits the script.
constexpr const char* kScriptHash = "ohfsZTDukTdZaEgmZeWNR8Ov3gjA2s/VlUCjfFT8bWw=";

std::string heading(std::string_view title, std::string_view note) {
  const std::string html = fmt::format("<h2>{}</h2>", escape_html(title));
  return note.empty() ? html : html + fmt::format("<div class='note'>{}</div>", escape_html(note));
}

std::string summary_facts(const ReportData& data) {
  std::string html = "<div class='facts'>";
  for (const auto& [name, value] : data.summary) {
    html += fmt::format("<div class='fact'><span>{}</span><b>{}</b></div>", escape_html(name),
                        escape_html(value));
  }
  return html + "</div>";
}

/// Returns the loss chart, on a linear and on a log scale if all losses are positive; a check box in plain
/// CSS selects one.
std::string loss_chart(const ReportData& data) {
  const std::vector<Series> series = {{"validation", "var(--c1)", data.eval_loss},
                                      {"training", "var(--c0)", data.loss}};
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
  std::string html;
  if (!data.loss.empty() || !data.eval_loss.empty()) html += loss_chart(data);
  if (!data.score.points.empty())
    html += line_chart(data.score.title, {{data.score.name, "var(--c2)", data.score.points}});
  if (!data.learning_rate.empty())
    html += line_chart("Learning rate", {{"rate", "var(--c3)", data.learning_rate}});
  for (const std::string& chart : data.charts) html += chart;
  return html.empty() ? "" : "<h2>Curves</h2><div class='charts'>" + html + "</div>";
}

std::string gpu_charts(const ReportData& data) {
  if (data.gpu_charts.empty()) return "";
  std::string html = "<h2>GPUs</h2><div class='charts'>";
  for (const Chart& chart : data.gpu_charts) html += line_chart(chart.title, chart.series);
  return html + "</div>";
}

std::string sections(const ReportData& data) {
  std::string html;
  for (const ReportSection& section : data.sections) {
    if (section.charts.empty()) continue;
    html += heading(section.title, section.note) + "<div class='charts'>";
    for (const std::string& chart : section.charts) html += chart;
    html += "</div>";
  }
  return html;
}

/// Returns a row of the confusion matrix: the share of the true class, and the count, for each predicted
/// class.
std::string confusion_row(std::span<const int64_t> counts, size_t truth) {
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  std::string html;
  for (size_t j = 0; j < counts.size(); ++j) {
    if (counts[j] == 0) {
      html += "<td></td>";
      continue;
    }
    const double share = static_cast<double>(counts[j]) / static_cast<double>(total);
    const std::string percent = share < 0.005 ? "&lt;1%" : fmt::format("{:.0f}%", 100 * share);
    html += fmt::format("<td style='background:rgba({},{:.2f})'>{}<small>{}</small></td>",
                        truth == j ? "56,161,105" : "229,62,62", 0.12 + 0.75 * share, percent, counts[j]);
  }
  return html;
}

std::string confusion_table(const ReportData& data) {
  const size_t n = data.class_names.size();
  if (n == 0 || data.confusion.size() != n * n || n > 100) return "";
  std::string html =
      heading("Confusion matrix",
              "Each row is a true class: the share that was predicted as each class, and the count.") +
      "<div class='scroll matrix'><table><tr><th class='row'>true \\ predicted</th>";
  for (const std::string& name : data.class_names) html += fmt::format("<th>{}</th>", escape_html(name));
  html += "</tr>";
  for (size_t i = 0; i < n; ++i) {
    html += fmt::format("<tr><th class='row'>{}</th>{}</tr>", escape_html(data.class_names[i]),
                        confusion_row(std::span(data.confusion).subspan(i * n, n), i));
  }
  return html + "</table></div>";
}

std::string png_image(const std::string& png, const std::string& alt) {
  return fmt::format("<img alt='{}' src='data:image/png;base64,{}'>", escape_html(alt), base64(png));
}

std::string sample_grid(const ReportData& data) {
  if (data.samples.empty()) return "";
  std::string html = "<h2>Sample predictions</h2><div class='samples'>";
  for (const SamplePrediction& sample : data.samples) {
    const bool right = sample.truth == sample.predicted;
    html += fmt::format("<figure>{}<div class='{}'>{} {:.0f}%</div>{}</figure>",
                        png_image(sample.png, sample.truth), right ? "right" : "wrong",
                        escape_html(sample.predicted), 100 * sample.probability,
                        right ? "" : fmt::format("<div>is {}</div>", escape_html(sample.truth)));
  }
  return html + "</div>";
}

std::string mistake_grid(const ReportData& data) {
  if (data.mistakes.empty()) return "";
  std::string html = heading("Worst mistakes", "Wrong predictions with the largest loss, the worst first.") +
                     "<div class='samples'>";
  for (const SamplePrediction& sample : data.mistakes) {
    html += fmt::format("<figure>{}<div class='wrong'>{} {:.1f}%</div><div>is {}</div></figure>",
                        png_image(sample.png, sample.truth + ", predicted as " + sample.predicted),
                        escape_html(sample.predicted), 100 * sample.probability, escape_html(sample.truth));
  }
  return html + "</div>";
}

std::string tables(const ReportData& data) {
  std::string html;
  for (const ReportTable& table : data.tables) {
    if (table.rows.empty()) continue;
    html += heading(table.title, table.is_sortable ? "Select a heading to sort by its column." : "") +
            fmt::format("<div class='scroll'><table{}><tr>", table.is_sortable ? " class='sortable'" : "");
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

std::string legend(const ReportData& data) {
  if (data.legend.empty()) return "";
  std::string html = "<div class='legend'>";
  for (const LegendEntry& entry : data.legend)
    html += fmt::format("<span><i style='background:{}'></i>{}</span>", escape_html(entry.color),
                        escape_html(entry.name));
  return html + "</div>";
}

std::string strip_list(const std::vector<ImageStrip>& strips) {
  std::string html = "<div class='strips'>";
  for (const ImageStrip& strip : strips) {
    html += "<figure>";
    for (const std::string& image : strip.images)
      html += fmt::format("<img alt='' src='data:image/{};base64,{}'>",
                          image.starts_with("\xFF\xD8") ? "jpeg" : "png", base64(image));
    html += fmt::format("<div>{}</div></figure>", escape_html(strip.caption));
  }
  return html + "</div>";
}

std::string strips(const ReportData& data) {
  std::string html;
  if (!data.worst_strips.empty())
    html += heading("Worst mistakes", data.worst_note) + legend(data) + strip_list(data.worst_strips);
  if (!data.strips.empty()) html += heading(data.strips_title, "") + legend(data) + strip_list(data.strips);
  return html;
}

std::string texts(const ReportData& data) {
  if (data.texts.empty()) return "";
  std::string html = heading("Training texts", "Marked tokens count in the loss.") + "<div class='texts'>";
  for (const TextSample& sample : data.texts) {
    html += fmt::format("<figure><div class='soft'>{}</div><div class='text'>", escape_html(sample.caption));
    for (const TextPart& part : sample.parts) {
      const std::string text = escape_html(part.text);
      html += part.is_trained ? "<mark>" + text + "</mark>" : text;
    }
    html += "</div></figure>";
  }
  return html + "</div>";
}

}  // namespace

std::string make_report(const ReportData& data) {
  std::string html = fmt::format(
      "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
      "content='width=device-width'><meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; "
      "img-src data:; style-src 'unsafe-inline'; script-src "
      "'sha256-{}'\"><title>{}</title><style>{}{}</style>"
      "</head><body><main><h1>{}</h1>",
      kScriptHash, escape_html(data.title), page_style(), kStyle, escape_html(data.title));
  if (!data.subtitle.empty()) html += "<div class='subtitle'>" + escape_html(data.subtitle) + "</div>";
  if (!data.command.empty()) html += "<div class='command'>" + escape_html(data.command) + "</div>";
  html += summary_facts(data) + charts(data) + sections(data) + tables(data) + confusion_table(data) +
          mistake_grid(data) + sample_grid(data) + strips(data) + texts(data) + gpu_charts(data);
  if (!data.arena_svg.empty()) {
    html += "<h2>The arena over one training step</h2><div class='scroll arena'>" + data.arena_svg + "</div>";
  }
  return html + fmt::format("</main><script>{}</script></body></html>\n", kScript);
}

}  // namespace hearth::io
