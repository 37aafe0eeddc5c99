#include "io/run_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/flush.h"
#include "base/json.h"

namespace hearth::io {
namespace {

constexpr size_t kLineBytes = 512;

struct Line {
  std::string text;
  nlohmann::json values;
  int64_t step = 0;
};

/// Returns the valid lines of a log in order; skips lines that are incomplete because of a crash. Empty if
/// there is no log.
std::vector<Line> read_lines(const fs::path& path) {
  std::vector<Line> lines;
  if (!path_exists(path)) return lines;
  std::istringstream in(read_file(path));
  for (std::string text; std::getline(in, text);) {
    auto values = parse_json<nlohmann::json>(text);
    if (!values || !values->is_object()) continue;
    const auto step = values->find("current_steps");
    if (step == values->end() || !step->is_number_integer() || step->get<int64_t>() < 0) continue;
    const auto number = step->get<int64_t>();
    lines.push_back({.text = std::move(text), .values = std::move(*values), .step = number});
  }
  return lines;
}

void keep_lines_until(const fs::path& path, int64_t last_step) {
  std::string kept;
  for (const Line& line : read_lines(path)) {
    if (line.step <= last_step) kept += line.text + "\n";
  }
  write_file_atomically(path, kept);
}

/// JSON text of a number, formatted without memory allocation; nan and infinity become null.
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

/// Returns the value of a key or JSON pointer; null if there is none.
const nlohmann::json* find_value(const nlohmann::json& values, const std::string& key) {
  if (key.starts_with('/')) {
    const nlohmann::json::json_pointer pointer(key);
    return values.contains(pointer) ? &values.at(pointer) : nullptr;
  }
  const auto found = values.find(key);
  return found == values.end() ? nullptr : &*found;
}

}  // namespace

RunLog::RunLog(const fs::path& path, int64_t last_step) : path_(path) {
  keep_lines_until(path, last_step);
  const int descriptor = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor >= 0) file_ = fdopen(descriptor, "ab");
  if (file_ == nullptr) user_error("cannot write {}: {}", path.string(), std::strerror(errno));
}

RunLog::~RunLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void RunLog::write(const char* line, size_t size) {
  if (std::fwrite(line, 1, size, file_) != size)
    user_error("cannot write {}: {}", path_.string(), std::strerror(errno));
}

void RunLog::flush() {
  if (std::fflush(file_) != 0) user_error("cannot write {}: {}", path_.string(), std::strerror(errno));
}

void RunLog::step(int64_t step, int64_t total, double loss, double rate, double grad_norm,
                  double elapsed_seconds, std::string_view gpus) {
  char line[kLineBytes];
  const auto end =
      fmt::format_to_n(line, sizeof(line),
                       "{{\"current_steps\":{},\"total_steps\":{},\"loss\":{},\"lr\":{},\"grad_norm\":{},"
                       "\"percentage\":{:.2f},\"elapsed_time\":{:.3f}",
                       step, total, Number(loss).text(), Number(rate).text(), Number(grad_norm).text(),
                       100.0 * static_cast<double>(step) / static_cast<double>(total), elapsed_seconds);
  write(line, end.size);
  if (!gpus.empty()) {
    constexpr std::string_view kKey = ",\"gpu\":";
    write(kKey.data(), kKey.size());
    write(gpus.data(), gpus.size());
  }
  write("}\n", 2);
  flush();
}

void RunLog::evaluation(int64_t step, double loss, std::span<const std::pair<const char*, double>> metrics,
                        bool is_best) {
  std::string line = fmt::format("{{\"current_steps\":{},\"eval_loss\":{}", step, Number(loss).text());
  for (const auto& [name, value] : metrics)
    line += fmt::format(",\"eval_{}\":{}", name, Number(value).text());
  line += is_best ? ",\"best\":true}\n" : "}\n";
  write(line.data(), line.size());
  flush();
}

void RunLog::event(int64_t step, std::string_view text) {
  const auto replace = nlohmann::json::error_handler_t::replace;
  const std::string quoted = nlohmann::json(text).dump(-1, ' ', false, replace);
  const std::string line = fmt::format("{{\"current_steps\":{},\"event\":{}}}\n", step, quoted);
  write(line.data(), line.size());
  flush();
}

void RunLog::sparsity(int64_t step, double total, std::span<const std::pair<std::string, double>> layers) {
  std::string names;
  for (const auto& [name, fraction] : layers)
    names += fmt::format("{}{}:{}", names.empty() ? "" : ",", nlohmann::json(name).dump(),
                         Number(fraction).text());
  const std::string line = fmt::format("{{\"current_steps\":{},\"sparsity\":{},\"layer_sparsity\":{{{}}}}}\n",
                                       step, Number(total).text(), names);
  write(line.data(), line.size());
  flush();
}

void RunLog::sync() {
  if (flush_to_disk(fileno(file_)) != 0)
    user_error("cannot flush {}: {}", path_.string(), std::strerror(errno));
}

std::vector<CurvePoint> read_curve(const fs::path& path, const std::string& key) {
  return std::move(read_curves(path, {key})[0]);
}

std::vector<std::vector<CurvePoint>> read_curves(const fs::path& path, const std::vector<std::string>& keys) {
  std::vector<std::vector<CurvePoint>> curves(keys.size());
  for (const Line& line : read_lines(path)) {
    auto* curve = curves.data();
    for (const std::string& key : keys) {
      const nlohmann::json* const value = find_value(line.values, key);
      if (value != nullptr && value->is_number()) curve->push_back({line.step, value->get<double>()});
      ++curve;
    }
  }
  return curves;
}

}  // namespace hearth::io
