#include "loggers/python_logger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/run_files.h"
#include "base/text.h"
#include "loggers/follower.h"
#include "loggers/python_files.h"

namespace hearth::loggers {
namespace {

using Json = nlohmann::json;

/// Timeout of an answer. A slow login of a package takes less.
constexpr auto kAnswerTimeout = std::chrono::seconds(150);

std::string python_program() {
  if (const char* const set = std::getenv("HEARTH_LOGGER_PYTHON"); set != nullptr && *set != '\0') return set;
  std::error_code error;
  const fs::path adjacent = fs::read_symlink("/proc/self/exe", error).parent_path() / "python3";
  return access(adjacent.c_str(), X_OK) == 0 ? adjacent.string() : "python3";
}

/// A Python process that answers each line of its standard input with a line on standard output.
class PythonProcess {
 public:
  PythonProcess(const std::string& package, const fs::path& log);
  ~PythonProcess();
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;

  /// Sends a line and returns the answer. Throws a UserError if the process ends or does not answer, or if
  /// is_cancelled() returns true.
  std::string request(const std::string& line, const std::function<bool()>& is_cancelled);

 private:
  /// Waits until the descriptor is ready for `events`.
  void wait(int descriptor, short events, const std::function<bool()>& is_cancelled) const;

  std::string program_ = python_program();
  fs::path log_;
  pid_t process_ = -1;
  int input_ = -1, output_ = -1;
  std::chrono::steady_clock::time_point requested_at_;
};

PythonProcess::PythonProcess(const std::string& package, const fs::path& log) : log_(log) {
  make_inner_folder(log.parent_path());
  const int errors = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
  int input[2], output[2];
  if (errors < 0 || pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0)
    user_error("cannot start {}: {}; check {} and the limit of open files (ulimit -n)", program_,
               std::strerror(errno), log.string());
  const std::string script(python_files()[0].text);
  process_ = fork();
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(input[0], STDIN_FILENO);
    dup2(output[1], STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    execlp(program_.c_str(), program_.c_str(), "-c", script.c_str(), package.c_str(), nullptr);
    _exit(127);
  }
  for (const int descriptor : {errors, input[0], output[1]}) close(descriptor);
  input_ = input[1];
  output_ = output[0];
  for (const int descriptor : {input_, output_}) fcntl(descriptor, F_SETFL, O_NONBLOCK);
  if (process_ < 0)
    user_error("cannot start {}: {}; raise the limit of processes (ulimit -u)", program_,
               std::strerror(errno));
}

PythonProcess::~PythonProcess() {
  close(input_);
  close(output_);
  if (process_ < 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

void PythonProcess::wait(int descriptor, short events, const std::function<bool()>& is_cancelled) const {
  pollfd wanted{.fd = descriptor, .events = events, .revents = 0};
  while (poll(&wanted, 1, 1000) <= 0) {
    if (is_cancelled()) user_error("timeout: the run has ended, and the Python process did not answer");
    if (std::chrono::steady_clock::now() - requested_at_ > kAnswerTimeout)
      user_error("no answer from the Python process for {} s; see its messages in {}", kAnswerTimeout.count(),
                 log_.string());
  }
}

std::string PythonProcess::request(const std::string& line, const std::function<bool()>& is_cancelled) {
  requested_at_ = std::chrono::steady_clock::now();
  const auto ended = [&] {
    user_error("{} exited; see its messages in {}, or set HEARTH_LOGGER_PYTHON to another Python", program_,
               log_.string());
  };
  for (std::string_view rest = line; !rest.empty();) {
    wait(input_, POLLOUT, is_cancelled);
    const ssize_t count = write(input_, rest.data(), rest.size());
    if (count < 0 && errno != EAGAIN && errno != EINTR) ended();
    rest.remove_prefix(static_cast<size_t>(std::max<ssize_t>(0, count)));
  }
  std::string answer;
  while (!answer.ends_with('\n')) {
    wait(output_, POLLIN, is_cancelled);
    char buffer[4096];
    const ssize_t count = read(output_, buffer, sizeof(buffer));
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) ended();
    answer.append(buffer, static_cast<size_t>(std::max<ssize_t>(0, count)));
  }
  return answer;
}

class PythonLogger : public Logger {
 public:
  explicit PythonLogger(std::string package) : package_(std::move(package)) {}

  std::string open(const RunInfo& run) override {
    run_ = run;
    process_.emplace(package_, run.folder / kLoggerFolder / (package_ + ".log"));
    Json config = Json::object();
    for (const auto& [key, value] : run.config) config[key] = value;
    return call("open", {{"name", run.name},
                         {"project", run.project},
                         {"config", config},
                         {"folder", fs::absolute(run.folder).string()},
                         {"id", run.id}})
        .at("id");
  }
  void send(const Batch& batch) override {
    Json rows = Json::array(), images = Json::array();
    for (const Row& row : batch.rows) {
      Json metrics = Json::object();
      for (const auto& [name, value] : row.metrics) metrics[name] = value;
      rows.push_back({{"step", row.step}, {"is_evaluation", row.is_evaluation}, {"metrics", metrics}});
    }
    for (const Image& image : batch.images)
      images.push_back(
          {{"step", image.step}, {"name", image.name}, {"file", fs::absolute(image.file).string()}});
    call("send", {{"rows", rows}, {"images", images}});
  }
  void finish(const RunEnd& end) override {
    Json files = Json::array();
    for (const char* name : kFinalFiles)
      if (path_exists(run_.folder / name)) files.push_back(fs::absolute(run_.folder / name).string());
    call("finish", {{"exit_status", end.state == EndState::crashed ? 1 : 0}, {"files", files}});
    process_.reset();
  }

 private:
  Json call(const char* function, const Json& arguments) {
    const Json request = {{"call", function}, {"arguments", arguments}};
    const std::string line = request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    Json answer = parse_json_object<Json>(process_->request(line, is_cancelled), "the answer of " + package_);
    if (answer.contains("error")) user_error("{}", shortened(answer.at("error").get<std::string>(), 300));
    return answer;
  }

  std::string package_;
  RunInfo run_;
  std::optional<PythonProcess> process_;
};

}  // namespace

std::unique_ptr<Logger> open_python_logger(const std::string& package) {
  return std::make_unique<PythonLogger>(package);
}

}  // namespace hearth::loggers
