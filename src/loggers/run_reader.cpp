#include "loggers/run_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "base/run_files.h"
#include "io/log_tail.h"
#include "io/run_log.h"

namespace hearth::loggers {
namespace {

using Json = nlohmann::json;

constexpr size_t kReadBytes = 64 << 10;
/// Max number of metrics of a line that are returned.
constexpr size_t kMaxMetricsPerRow = 500;

struct MetricName {
  const char* key;
  const char* name;
};
/// Keys of the log and names of their metrics.
constexpr MetricName kTrainMetrics[] = {{"loss", "train/loss"},
                                        {"lr", "train/learning_rate"},
                                        {"grad_norm", "train/grad_norm"},
                                        {"sparsity", "train/sparsity"}};
constexpr std::string_view kEvaluation = "eval_";

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double number_at(const Json& values, const char* key, double absent) {
  const auto found = values.find(key);
  return found != values.end() && found->is_number() ? found->get<double>() : absent;
}

void add_gpus(const Json& values, Row& row) {
  const auto gpus = values.find("gpu");
  if (gpus == values.end() || !gpus->is_array()) return;
  for (size_t i = 0; i < gpus->size(); ++i) {
    if (!(*gpus)[i].is_object()) continue;
    for (const auto& [key, value] : (*gpus)[i].items())
      if (value.is_number()) row.metrics.emplace_back(fmt::format("gpu{}/{}", i, key), value.get<double>());
  }
}

}  // namespace

FileId id_of(const fs::path& path) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0) return {};
  return {.device = found.st_dev, .inode = found.st_ino};
}

RunReader::RunReader(const fs::path& run, FileId outdated)
    : run_(run), path_(run / kLogFile), outdated_(outdated) {}

RunReader::~RunReader() { close(); }

bool RunReader::has_log() const {
  const FileId id = id_of(path_);
  return id != FileId{} && id != outdated_;
}

void RunReader::start(int64_t log_every, Cursor cursor) {
  close();
  log_every_ = log_every;
  cursor_ = cursor;
}

void RunReader::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
  buffer_.clear();
  buffer_start_ = 0;
}

bool RunReader::open() {
  if (!has_log()) return false;
  close();
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  struct stat found;
  if (descriptor_ < 0 || fstat(descriptor_, &found) != 0) return false;
  opened_ = {.device = found.st_dev, .inode = found.st_ino};
  outdated_ = {};  // a new log may get the inode of the outdated one
  const io::LogTail tail = io::read_log_tail(path_);
  start_time_ = seconds_since_1970() - tail.age_seconds - tail.elapsed_seconds;
  elapsed_seconds_ = 0;
  return true;
}

std::optional<std::string> RunReader::read_line() {
  if (descriptor_ < 0 && !open()) return std::nullopt;
  while (true) {
    if (const size_t end = buffer_.find('\n', buffer_start_); end != buffer_.npos) {
      std::string line = buffer_.substr(buffer_start_, end - buffer_start_);
      buffer_start_ = end + 1;
      return line;
    }
    buffer_.erase(0, buffer_start_);
    buffer_start_ = 0;
    const size_t size = buffer_.size();
    buffer_.resize(size + kReadBytes);
    const ssize_t count = read(descriptor_, buffer_.data() + size, kReadBytes);
    buffer_.resize(size + static_cast<size_t>(std::max<ssize_t>(0, count)));
    if (count > 0) continue;
    if (!has_log()) return std::nullopt;
    if (id_of(path_) == opened_) {
      // The last line was written at the time of the last write to the file.
      start_time_ = seconds_since_1970() - io::log_age_seconds(path_) - elapsed_seconds_;
      return std::nullopt;
    }
    if (!open()) return std::nullopt;
  }
}

std::optional<Row> RunReader::row_of(const std::string& line) {
  const std::optional<Json> values = parse_json<Json>(line);
  if (!values || !values->is_object()) return std::nullopt;
  const auto step = static_cast<int64_t>(number_at(*values, "current_steps", -1));
  elapsed_seconds_ = number_at(*values, "elapsed_time", elapsed_seconds_);
  Row row{.step = step,
          .time = start_time_ + elapsed_seconds_,
          .is_evaluation = values->contains("eval_loss"),
          .is_best = values->contains("best")};
  if (row.is_evaluation) {
    if (step <= cursor_.evaluation) return std::nullopt;
    cursor_.evaluation = step;
    for (const auto& [key, value] : values->items()) {
      if (key.starts_with(kEvaluation) && value.is_number())
        row.metrics.emplace_back("eval/" + key.substr(kEvaluation.size()), value.get<double>());
    }
    return row;
  }
  const bool is_update = values->contains("loss");
  if ((!is_update && !values->contains("sparsity")) || step <= cursor_.train) return std::nullopt;
  if (is_update) {
    cursor_.train = step;
    const double total = number_at(*values, "total_steps", 0);
    if (step != 1 && step % log_every_ != 0 && static_cast<double>(step) != total) return std::nullopt;
  }
  for (const auto& [key, name] : kTrainMetrics) {
    const auto found = values->find(key);
    if (found != values->end() && found->is_number()) row.metrics.emplace_back(name, found->get<double>());
  }
  add_gpus(*values, row);
  return row;
}

void RunReader::add_images(int64_t step, Batch& batch) const {
  const std::string prefix = fmt::format("step-{:06}-", step);
  std::vector<fs::path> files = list_folder(run_ / io::kSamplesFolder);
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    const std::string name = file.stem().string();
    if (name.starts_with(prefix) && file.extension() == ".png")
      batch.images.push_back({.step = step, .name = name.substr(prefix.size()), .file = file});
  }
}

Batch RunReader::next() {
  Batch batch;
  size_t num_metrics = 0;
  while (num_metrics + kMaxMetricsPerRow <= kMaxMetrics) {
    const std::optional<std::string> line = read_line();
    if (!line) break;
    std::optional<Row> row = row_of(*line);
    if (!row) continue;
    if (row->metrics.size() > kMaxMetricsPerRow) row->metrics.resize(kMaxMetricsPerRow);
    num_metrics += row->metrics.size();
    if (row->is_evaluation) add_images(row->step, batch);
    batch.rows.push_back(std::move(*row));
  }
  return batch;
}

}  // namespace hearth::loggers
