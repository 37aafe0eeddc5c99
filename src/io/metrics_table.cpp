#include "io/metrics_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/run_files.h"
#include "base/text.h"

namespace hearth::io {
namespace {

/// Returns the number in the first cell of a row; nullopt if there is none.
std::optional<int64_t> step_of(std::string_view row) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(row.data(), row.data() + row.size(), step);
  const bool ends_cell = end == row.data() + row.size() || *end == ',';
  return error == std::errc() && ends_cell ? std::optional(step) : std::nullopt;
}

std::vector<std::string> cells_of(std::string_view row) {
  std::vector<std::string> cells(1);
  for (const char c : row) c == ',' ? cells.emplace_back() : cells.back() += c;
  return cells;
}

}  // namespace

MetricsTable::MetricsTable(fs::path path, int64_t last_step) : path_(std::move(path)) {
  refuse_link(path_);
  const std::string text = last_step >= 0 && path_exists(path_) ? read_file(path_) : "";
  std::string_view rest = std::string_view(text).substr(0, text.rfind('\n') + 1);
  std::string rows;
  if (std::vector<std::string> header = cells_of(take_line(rest)); header[0] == columns_[0]) {
    columns_ = std::move(header);
    while (!rest.empty()) {
      const std::string_view row = take_line(rest);
      if (const auto step = step_of(row); step && *step <= last_step) rows.append(row).append("\n");
    }
  }
  replace(rows);
}

void MetricsTable::replace(const std::string& rows) {
  file_.reset();
  write_file_atomically(path_, fmt::format("{}\n{}", fmt::join(columns_, ","), rows));
  file_.emplace(path_, FileWriter::Existing::continued);
}

void MetricsTable::add(int64_t step, std::span<const Metric> metrics) {
  const size_t before = columns_.size();
  for (const auto& [name, value] : metrics)
    if (std::ranges::find(columns_, name) == columns_.end()) columns_.push_back(name);
  if (columns_.size() > before) {
    const std::string text = read_file(path_);
    std::string rows;
    std::string_view rest = text;
    for (take_line(rest); !rest.empty();)
      rows.append(take_line(rest)).append(columns_.size() - before, ',').append("\n");
    replace(rows);
  }
  file_->write(text_of_row(step, metrics));
}

std::string MetricsTable::text_of_row(int64_t step, std::span<const Metric> metrics) {
  std::string row = std::to_string(step);
  for (size_t i = 1; i < columns_.size(); ++i) {
    const auto metric = std::ranges::find(metrics, columns_[i], &Metric::first);
    row +=
        metric == metrics.end() || !std::isfinite(metric->second) ? "," : fmt::format(",{}", metric->second);
  }
  return row + "\n";
}

void MetricsTable::sync() {
  file_->sync_and_close();
  file_.emplace(path_, FileWriter::Existing::continued);
}

}  // namespace hearth::io
