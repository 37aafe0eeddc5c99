#include "loggers/follower.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/run_files.h"
#include "recipe/fields.h"
#include "recipe/recipe_file.h"

namespace hearth::loggers {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kMaxRetrySeconds = 60;
/// Max number of failures of workers that are kept until they are sent.
constexpr size_t kMaxFailures = 100;
/// Min time between two writes of the state file.
constexpr Seconds kSaveInterval(5);

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

class Follower {
 public:
  Follower(Logger& logger, const FollowOptions& options);
  void run();

 private:
  void handle_notice(const Notice& notice);
  void wait();
  bool is_past_deadline() const { return end_ && Clock::now() > deadline_; }
  void describe_recipe();
  void load_state();
  void save_state();
  void open();
  void send_all();
  void report_error(const std::string& error, bool is_last);
  void report_success();

  Logger& logger_;
  const FollowOptions& options_;
  fs::path state_file_;
  RunReader reader_;
  RunInfo info_;
  int64_t log_every_ = 1;
  bool is_open_ = false;
  Batch batch_;  ///< reports that were read but not sent
  Cursor sent_;
  Clock::time_point saved_at_;
  std::deque<std::string> failures_;  ///< failures of workers that were not sent
  std::optional<RunEnd> end_;         ///< set after the end of the run
  Clock::time_point deadline_;        ///< time at which sending is given up; set with end_
  double retry_seconds_ = 0;          ///< time before the next retry; 0: the last call succeeded
  bool has_reported_error_ = false, has_reported_success_ = false;
};

Follower::Follower(Logger& logger, const FollowOptions& options)
    : logger_(logger),
      options_(options),
      state_file_(options.run / kLoggerFolder / (options.logger + ".json")),
      reader_(options.run, options.outdated_log) {
  const std::string folder = fs::absolute(options.run).lexically_normal().filename().string();
  info_ = {.folder = options.run,
           .project = options.project,
           .name = options.name.empty() ? folder : options.name,
           .config = {},
           .recipe = "",
           .id = ""};
  logger_.is_cancelled = [this] {
    // After the parent process has ended, every call of wait() returns the same notice.
    while (!end_) {
      const auto notice = options_.wait(0);
      if (!notice) break;
      handle_notice(*notice);
    }
    return is_past_deadline();
  };
}

void Follower::handle_notice(const Notice& notice) {
  if (end_) return;  // when the parent process ends, a second notice follows
  if (notice.is_end) {
    end_ = notice.end;
    deadline_ = after(retry_seconds_ > 0 ? options_.end_seconds_if_failing : options_.end_seconds);
  } else if (logger_.wants_failures()) {
    failures_.push_back(notice.end.text);
    if (failures_.size() > kMaxFailures) failures_.pop_front();
  }
}

/// Waits until the next read of the log or the next retry, or until the run ends.
void Follower::wait() {
  constexpr double kMinSeconds = 1e-3;
  const Clock::time_point until = after(retry_seconds_ > 0 ? retry_seconds_ : options_.poll_seconds);
  do {
    const double seconds = Seconds(until - Clock::now()).count();
    if (const auto notice = options_.wait(std::max(kMinSeconds, seconds))) handle_notice(*notice);
  } while (!end_ && Clock::now() < until);
}

/// Reads the recipe of the run into info_.
void Follower::describe_recipe() {
  recipe::Recipe recipe = recipe::load_recipe(options_.run / kRunRecipe, recipe::Choices{});
  log_every_ = recipe.train.log_every;
  recipe.log.webhook.clear();  // may contain a secret
  info_.recipe = recipe::write_recipe(recipe);
  info_.config.clear();
  for (const recipe::Field& field : recipe::recipe_fields())
    info_.config.emplace_back(field.key, field.write(recipe));
}

void Follower::load_state() {
  if (!path_exists(state_file_)) return;
  const auto state = parse_json<nlohmann::json>(read_file(state_file_));
  if (!state || !state->is_object()) return;
  const auto step = [&](const char* key) {
    const auto found = state->find(key);
    return found != state->end() && found->is_number_integer() ? found->get<int64_t>() : -1;
  };
  if (const auto id = state->find("id"); id != state->end() && id->is_string()) info_.id = *id;
  if (!info_.id.empty()) sent_ = {.train = step("train_step"), .evaluation = step("eval_step")};
}

void Follower::save_state() {
  if (!reader_.has_log()) return;  // the run folder may be deleted
  make_inner_folder(state_file_.parent_path());
  const nlohmann::json state = {
      {"id", info_.id}, {"train_step", sent_.train}, {"eval_step", sent_.evaluation}};
  write_file_atomically(state_file_, state.dump() + "\n");
  saved_at_ = Clock::now();
}

/// Opens the logger. If the logger returns another id than before, restarts at the first report.
void Follower::open() {
  if (info_.config.empty() && reader_.has_log()) {
    describe_recipe();
    load_state();
    reader_.start(log_every_, sent_);
  }
  const std::string id = logger_.open(info_);
  is_open_ = true;
  if (id == info_.id) return;
  info_.id = id;
  sent_ = {};
  batch_ = {};
  reader_.start(log_every_, sent_);
  save_state();
}

/// Sends all reports of the run that were not sent.
void Follower::send_all() {
  const bool has_failed = !failures_.empty() || (end_ && end_->state == EndState::crashed);
  if (!is_open_ && !reader_.has_log() && !(has_failed && logger_.wants_failures())) return;
  if (!is_open_ || (info_.config.empty() && reader_.has_log())) open();
  while (!failures_.empty()) {
    logger_.send_failure(failures_.front());
    failures_.pop_front();
  }
  while (true) {
    if (batch_.rows.empty()) batch_ = reader_.next();
    if (batch_.rows.empty()) break;
    logger_.send(batch_);
    batch_ = {};
    sent_ = reader_.cursor();
    if (Clock::now() - saved_at_ > kSaveInterval) save_state();
    if (logger_.is_cancelled()) user_error("timeout: the run has ended, and the logger was too slow");
  }
}

void Follower::report_error(const std::string& error, bool is_last) {
  is_open_ = false;
  retry_seconds_ = std::clamp(2 * retry_seconds_, options_.first_retry_seconds, kMaxRetrySeconds);
  if (is_last) {
    options_.say(fmt::format("{}: not all reports of the run were sent: {}; hearth resume sends them",
                             options_.logger, error));
    if (!info_.id.empty()) save_state();
  } else if (!end_ && !std::exchange(has_reported_error_, true)) {
    options_.say(fmt::format(
        "{}: {}; training continues, and Hearth sends the reports as soon as the logger accepts them",
        options_.logger, error));
  }
}

void Follower::report_success() {
  if (retry_seconds_ > 0 && !std::exchange(has_reported_success_, true))
    options_.say(fmt::format("{}: the logger works again; all reports were sent", options_.logger));
  retry_seconds_ = 0;
}

void Follower::run() {
  while (true) {
    const bool has_ended = end_.has_value();
    try {
      send_all();
      if (has_ended && is_open_) {
        logger_.finish(*end_);
        save_state();
      }
      report_success();
    } catch (const std::exception& error) {
      report_error(error.what(), has_ended);
    }
    if (has_ended) return;
    wait();
  }
}

}  // namespace

void follow(Logger& logger, const FollowOptions& options) { Follower(logger, options).run(); }

}  // namespace hearth::loggers
