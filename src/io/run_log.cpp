#include "io/run_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace hearth::io {
namespace {

constexpr size_t kLineBytes = 512;

/// The step of a log line, or -1 when the line was cut off by a crash.
int64_t step_of(const std::string& line) {
  const auto parsed = nlohmann::json::parse(line, nullptr, false);
  return parsed.is_object() ? parsed.value("current_steps", int64_t{-1}) : -1;
}

void keep_lines_until(const fs::path& path, int64_t last_step) {
  std::ifstream in(path);
  std::string kept;
  std::string line;
  while (std::getline(in, line)) {
    const int64_t step = step_of(line);
    if (step >= 0 && step <= last_step) kept += line + "\n";
  }
  write_file_atomically(path, kept);
}

/// A number of JSON, which has no nan and no infinity; made without allocating.
class Number {
 public:
  explicit Number(double value)
      : size_(std::isfinite(value) ? fmt::format_to_n(text_, sizeof(text_), "{}", value).size
                                   : fmt::format_to_n(text_, sizeof(text_), "null").size) {}
  std::string_view text() const { return {text_, size_}; }

 private:
  char text_[32];
  size_t size_;
};

}  // namespace

RunLog::RunLog(const fs::path& path, int64_t last_step) : path_(path) {
  keep_lines_until(path, last_step);
  file_ = std::fopen(path.c_str(), "ab");
  if (file_ == nullptr) user_error("cannot write {}: {}", path.string(), std::strerror(errno));
}

RunLog::~RunLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void RunLog::write(const char* line, size_t size) {
  if (std::fwrite(line, 1, size, file_) != size || std::fflush(file_) != 0) {
    user_error("cannot write {}: {}", path_.string(), std::strerror(errno));
  }
}

void RunLog::step(int64_t step, int64_t total, double loss, double rate, double grad_norm,
                  double elapsed_seconds) {
  char line[kLineBytes];
  const auto end =
      fmt::format_to_n(line, sizeof(line),
                       "{{\"current_steps\":{},\"total_steps\":{},\"loss\":{},\"lr\":{},\"grad_norm\":{},"
                       "\"percentage\":{:.2f},\"elapsed_time\":{:.3f}}}\n",
                       step, total, Number(loss).text(), Number(rate).text(), Number(grad_norm).text(),
                       100.0 * static_cast<double>(step) / static_cast<double>(total), elapsed_seconds);
  write(line, end.size);
}

void RunLog::evaluation(int64_t step, double loss, std::span<const std::pair<const char*, double>> metrics) {
  std::string line = fmt::format("{{\"current_steps\":{},\"eval_loss\":{}", step, Number(loss).text());
  for (const auto& [name, value] : metrics)
    line += fmt::format(",\"eval_{}\":{}", name, Number(value).text());
  line += "}\n";
  write(line.data(), line.size());
}

void RunLog::event(int64_t step, std::string_view text) {
  const auto replace = nlohmann::json::error_handler_t::replace;
  const std::string quoted = nlohmann::json(text).dump(-1, ' ', false, replace);
  const std::string line = fmt::format("{{\"current_steps\":{},\"event\":{}}}\n", step, quoted);
  write(line.data(), line.size());
}

std::vector<CurvePoint> read_curve(const fs::path& path, std::string_view key) {
  std::vector<CurvePoint> points;
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (!parsed.is_object() || !parsed.contains(key) || !parsed.at(std::string(key)).is_number()) continue;
    points.push_back({parsed.value("current_steps", int64_t{0}), parsed.at(std::string(key)).get<double>()});
  }
  return points;
}

}  // namespace hearth::io
