#include "io/log_tail.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/text.h"

namespace hearth::io {
namespace {

using Json = nlohmann::json;

constexpr int64_t kTailBytes = 64 << 10;
constexpr size_t kMaxLosses = 400;

/// Returns the complete lines in the last 64 KiB of a log, without a line that is cut off at the start or is
/// still being written.
std::string last_lines(const fs::path& log) {
  std::ifstream file(log, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const auto size = static_cast<int64_t>(file.tellg());
  const int64_t begin = std::max<int64_t>(0, size - kTailBytes);
  std::string text(static_cast<size_t>(std::max<int64_t>(0, size - begin)), '\0');
  file.seekg(begin);
  file.read(text.data(), std::ssize(text));
  text.resize(static_cast<size_t>(file.gcount()));
  if (begin > 0) text.erase(0, std::min(text.size(), text.find('\n')) + 1);
  text.resize(text.rfind('\n') + 1);
  return text;
}

double number_in(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : 0;
}

void take(const Json& line, LogTail& tail, double& first_elapsed, int64_t& first_step) {
  if (line.contains("loss") && line["loss"].is_number()) {
    tail.step = static_cast<int64_t>(number_in(line, "current_steps"));
    tail.total_steps = static_cast<int64_t>(number_in(line, "total_steps"));
    tail.elapsed_seconds = number_in(line, "elapsed_time");
    tail.losses.push_back(line["loss"].get<double>());
    if (first_step < 0 || tail.step <= first_step) {
      first_step = tail.step;
      first_elapsed = tail.elapsed_seconds;
    }
  }
  if (line.contains("event") && line["event"].is_string()) tail.event = line["event"].get<std::string>();
  if (!line.contains("eval_loss")) return;
  tail.evaluation.clear();
  tail.metrics.clear();
  for (const auto& [key, value] : line.items()) {
    if (!key.starts_with("eval_") || !value.is_number()) continue;
    tail.metrics.emplace_back(key, value.get<double>());
    tail.evaluation +=
        fmt::format("{}{} {:.4g}", tail.evaluation.empty() ? "" : "  ", key, value.get<double>());
  }
}

}  // namespace

double log_age_seconds(const fs::path& log) {
  std::error_code error;
  const auto written = fs::last_write_time(log, error);
  return error ? 0 : std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count();
}

LogTail read_log_tail(const fs::path& log) {
  LogTail tail;
  const std::string text = last_lines(log);
  tail.age_seconds = log_age_seconds(log);
  double first_elapsed = 0;
  int64_t first_step = -1;
  for (std::string_view rest = text; !rest.empty();) {
    const std::optional<Json> line = parse_json<Json>(take_line(rest));
    if (line && line->is_object()) take(*line, tail, first_elapsed, first_step);
  }
  if (tail.losses.size() > kMaxLosses) tail.losses.erase(tail.losses.begin(), tail.losses.end() - kMaxLosses);
  if (first_step >= 0 && tail.step > first_step)
    tail.seconds_per_step =
        (tail.elapsed_seconds - first_elapsed) / static_cast<double>(tail.step - first_step);
  return tail;
}

}  // namespace hearth::io
