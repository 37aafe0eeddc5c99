#include "ui/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/run_files.h"
#include "base/text.h"
#include "io/log_tail.h"
#include "io/run_lock.h"
#include "io/run_outputs.h"
#include "ui/log_line.h"
#include "ui/recipe_keys.h"

namespace hearth::ui {
namespace {

constexpr size_t kMaxRuns = 5000;
constexpr size_t kMaxSparkPoints = 64;
constexpr size_t kMaxTextBytes = 300;
/// A run whose process is on another machine counts as ended if its last log line is older than both limits,
/// in seconds and in steps.
constexpr double kMinSilenceSeconds = 60, kMinSilentSteps = 20;

/// Returns the modification time of a file; the epoch of the clock if there is no regular file.
fs::file_time_type written_at(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(path, error))) return {};
  const fs::file_time_type time = fs::last_write_time(path, error);
  return error ? fs::file_time_type{} : time;
}

double unix_seconds(fs::file_time_type time) {
  return std::chrono::duration<double>(fs::file_time_type::clock::to_sys(time).time_since_epoch()).count();
}

int64_t newest_checkpoint(const fs::path& run) {
  constexpr std::string_view kPrefix = "step-";
  int64_t newest = -1;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(run / kCheckpoints, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || name.size() > 18) continue;
    if (name.find_first_not_of("0123456789", kPrefix.size()) != std::string::npos || name.size() == 5)
      continue;
    newest = std::max<int64_t>(newest, std::stoll(name.substr(kPrefix.size())));
  }
  return newest;
}

/// Returns every n-th loss, including the last one, so that at most kMaxSparkPoints are left.
std::vector<double> thinned(const std::vector<double>& losses) {
  const size_t stride = losses.size() / kMaxSparkPoints + 1;
  std::vector<double> out;
  for (size_t i = (losses.size() + stride - 1) % stride; i < losses.size(); i += stride)
    out.push_back(losses[i]);
  return out;
}

bool is_run(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kLogFile, error) || fs::exists(folder / kRunRecipe, error);
}

}  // namespace

const char* name_of(RunState state) {
  constexpr const char* kNames[] = {"running", "done", "stopped", "crashed"};
  return kNames[static_cast<size_t>(state)];
}

void BestScore::take(std::string_view text) {
  LogLine line;
  if (text.find("\"eval_") == std::string_view::npos || !parse_log_line(text, line)) return;
  const auto is_score = [](const std::string& key) {
    return key.starts_with("eval_") &&
           (key.find("accura") != key.npos || key == "eval_map" || key == "eval_miou");
  };
  const auto& numbers = line.numbers;
  auto found = std::ranges::find_if(numbers, is_score, &std::pair<std::string, double>::first);
  const bool is_high = found != numbers.end();
  if (!is_high) found = std::ranges::find(numbers, "eval_loss", &std::pair<std::string, double>::first);
  if (found == numbers.end() ||
      (step >= 0 && name == found->first && !(is_high ? found->second > value : found->second < value)))
    return;
  if (step >= 0 && name != found->first && !is_high) return;
  *this = {found->first, found->second, line.step};
}

std::string RunSummary::json() const {
  const nlohmann::ordered_json json = {{"name", name},
                                       {"state", name_of(state)},
                                       {"owner", owner},
                                       {"step", step},
                                       {"total", total_steps},
                                       {"elapsed", elapsed_seconds},
                                       {"step_seconds", seconds_per_step},
                                       {"logged_at", logged_at},
                                       {"losses", losses},
                                       {"evaluation", evaluation},
                                       {"event", event},
                                       {"best_name", best.name},
                                       {"best", best.value},
                                       {"best_step", best.step},
                                       {"model", model},
                                       {"checkpoint", checkpoint_step},
                                       {"report", has_report}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RunReader::RunReader(fs::path folder, std::string name)
    : folder_(std::move(folder)), evaluations_(folder_ / kLogFile) {
  summary_.name = std::move(name);
}

void RunReader::refresh() {
  try {
    if (const auto time = written_at(folder_ / kLogFile); time != logged_) {
      logged_ = time;
      read_log();
    }
    if (const auto time = written_at(folder_ / kRunRecipe); time != configured_) {
      configured_ = time;
      summary_.model = shortened(model_name_in(folder_ / kRunRecipe), kMaxTextBytes);
    }
    summary_.checkpoint_step = newest_checkpoint(folder_);
    summary_.state = find_state();
  } catch (const UserError&) {
    summary_.state = RunState::crashed;  // the folder was deleted or is unreadable
  } catch (const fs::filesystem_error&) {
    summary_.state = RunState::crashed;
  }
}

void RunReader::read_log() {
  const io::LogTail tail = io::read_log_tail(folder_ / kLogFile);
  summary_.step = tail.step;
  summary_.total_steps = tail.total_steps;
  summary_.elapsed_seconds = tail.elapsed_seconds;
  summary_.seconds_per_step = tail.seconds_per_step;
  summary_.logged_at = logged_ == fs::file_time_type{} ? 0 : unix_seconds(logged_);
  summary_.losses = thinned(tail.losses);
  summary_.evaluation = shortened(tail.evaluation, kMaxTextBytes);
  summary_.event = shortened(tail.event, kMaxTextBytes);
  while (evaluations_.read(
      INT64_MAX / 2, [&] { summary_.best = {}; },
      [&](std::string_view line, int64_t) { summary_.best.take(line); }))
    continue;
}

RunState RunReader::find_state() {
  const auto report = written_at(folder_ / io::kReportFile);
  summary_.has_report = report != fs::file_time_type{};
  summary_.owner.clear();
  const io::LockOwner owner = io::find_lock_owner(folder_);
  const double silence_seconds = unix_seconds(fs::file_time_type::clock::now()) - summary_.logged_at;
  const bool is_silent =
      silence_seconds > std::max(kMinSilenceSeconds, kMinSilentSteps * summary_.seconds_per_step);
  const bool is_done = summary_.total_steps > 0 && summary_.step >= summary_.total_steps;
  if (owner.presence == io::LockOwner::Presence::alive ||
      (owner.presence == io::LockOwner::Presence::unknown && !is_silent && !is_done)) {
    summary_.owner = shortened(owner.name, kMaxTextBytes);
    return RunState::running;
  }
  if (is_done) return RunState::done;
  return summary_.has_report && report >= logged_ ? RunState::stopped : RunState::crashed;
}

std::vector<fs::path> find_runs(const fs::path& root) {
  if (is_run(root)) return {root};
  std::vector<fs::path> runs;
  const auto add = [&](const fs::path& folder) {
    if (runs.size() < kMaxRuns) runs.push_back(folder);
  };
  const auto folders_in = [](const fs::path& folder) {
    std::vector<fs::path> folders;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
         entry.increment(error)) {
      std::error_code ignored;
      if (entry->is_directory(ignored) && !entry->path().filename().string().starts_with('.'))
        folders.push_back(entry->path());
    }
    return folders;
  };
  for (const fs::path& folder : folders_in(root)) {
    if (is_run(folder)) {
      add(folder);
      continue;
    }
    for (const fs::path& inner : folders_in(folder))
      if (is_run(inner)) add(inner);
  }
  std::ranges::sort(runs);
  return runs;
}

}  // namespace hearth::ui
