#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/run_files.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/run_status.h"
#include "cli/verb.h"
#include "io/log_tail.h"
#include "run/gpu_readings.h"
#include "system/machine.h"
#include "system/sampler.h"

namespace hearth::cli {
namespace {

constexpr double kRecentSeconds = 3600;  // max age of the log of a run that is shown by default
constexpr size_t kMaxRuns = 8;
constexpr int kBar = 30;

struct WatchArguments {
  std::vector<std::string> runs;
  double seconds = 1;
  bool once = false;
  bool json = false;
  std::string root = "/";
};

/// Returns the run folders given on the command line; if there are none, those in runs/ whose log has changed
/// recently, newest first.
std::vector<fs::path> runs_to_show(const WatchArguments& arguments) {
  std::vector<fs::path> runs(arguments.runs.begin(), arguments.runs.end());
  if (!runs.empty()) return runs;
  std::vector<std::pair<double, fs::path>> recent;
  for (const fs::path& folder : list_folder("runs")) {
    const double age = io::log_age_seconds(folder / kLogFile);
    if (age > 0 && age < kRecentSeconds) recent.emplace_back(age, folder);
  }
  std::ranges::sort(recent);
  for (const auto& [age, folder] : recent)
    if (runs.size() < kMaxRuns) runs.push_back(folder);
  return runs;
}

/// Draws numbers as a row of at most `width` Unicode bars, scaled from their min to their max.
std::string sparkline(const std::vector<double>& numbers, size_t width) {
  constexpr std::array<const char*, 8> kBars = {"\u2581", "\u2582", "\u2583", "\u2584",
                                                "\u2585", "\u2586", "\u2587", "\u2588"};
  if (numbers.size() < 2) return "";
  const auto [least, most] = std::ranges::minmax(numbers);
  std::string text;
  const size_t count = std::min(width, numbers.size());
  for (size_t i = 0; i < count; ++i) {
    const double number = numbers[i * numbers.size() / count];
    const double share = most > least ? (number - least) / (most - least) : 0;
    text += std::isfinite(number) ? kBars.at(std::min<size_t>(7, static_cast<size_t>(share * 8))) : " ";
  }
  return text;
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::clamp(seconds, 0.0, 1e9));
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string run_text(const fs::path& folder, size_t columns) {
  const io::LogTail tail = io::read_log_tail(folder / kLogFile);
  if (tail.losses.empty()) return fmt::format("{}  no step is logged yet\n", folder.string());
  const double share =
      tail.total_steps > 0 ? static_cast<double>(tail.step) / static_cast<double>(tail.total_steps) : 0;
  const auto filled = static_cast<size_t>(share * kBar);
  std::string bar;
  for (size_t i = 0; i < kBar; ++i) bar += i < filled ? "\u2588" : "\u2591";
  std::string text = fmt::format("{}\n  {} {:.1f}%  step {}/{}  loss {:.4f}", folder.string(), bar,
                                 100 * share, tail.step, tail.total_steps, tail.losses.back());
  if (tail.seconds_per_step > 0)
    text +=
        fmt::format("  {:.2f} steps/s  ETA {}", 1 / tail.seconds_per_step,
                    clock_text(tail.seconds_per_step * static_cast<double>(tail.total_steps - tail.step)));
  text += fmt::format("\n  {}\n", sparkline(tail.losses, columns - 4));
  if (!tail.evaluation.empty()) text += fmt::format("  {}\n", tail.evaluation);
  if (!tail.event.empty()) text += fmt::format("  last event: {}\n", shortened(tail.event, columns - 16));
  const double timeout_seconds = std::max(60.0, 20 * tail.seconds_per_step);
  if (tail.step < tail.total_steps && tail.age_seconds > timeout_seconds)
    text += fmt::format("  nothing was logged for {}\n", clock_text(tail.age_seconds));
  return text;
}

std::string number_text(float value, const char* form) {
  return value == value ? fmt::format(fmt::runtime(form), value) : "";
}

std::string gpu_text(const system::GpuReading& reading) {
  std::string text = fmt::format("{:<13}", reading.name());
  for (const auto& [value, form] : {std::pair{reading.busy, "  {:3.0f}% busy"},
                                    {reading.hottest(), "  {:3.0f} C"},
                                    {reading.memory, "  memory {:3.0f} C"},
                                    {reading.power, "  {:4.0f} W"},
                                    {reading.power_limit, " of {:.0f}"},
                                    {reading.clock, "  {:4.0f} MHz"}})
    text += number_text(value, form);
  if (reading.memory_used_bytes >= 0)
    text += fmt::format("  {} of {}", human_bytes(reading.memory_used_bytes),
                        human_bytes(std::max<int64_t>(0, reading.memory_bytes)));
  if (reading.throttle != 0)
    text += fmt::format("  throttled by {}", system::throttle_words(reading.throttle));
  return text + "\n";
}

/// Switches the terminal to the alternate screen and unbuffered keys; the destructor restores it.
class Screen {
 public:
  Screen() {
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    put("\033[?1049h\033[?25l");
  }
  ~Screen() {
    put("\033[?25h\033[?1049l");
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  static winsize size() {
    winsize size{};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    return size;
  }
  /// Shows the lines of `text` that fit on the screen, in place of its previous contents.
  void show(const std::string& text) const {
    std::string out = "\033[H";
    int rows = 0;
    for (std::string_view rest = text; !rest.empty() && rows + 1 < size().ws_row; ++rows)
      out += std::string(take_line(rest)) + "\033[K\r\n";
    put(out + "\033[J");
  }
  /// Waits for at most `seconds`. Returns true if the user has pressed q or Escape, or on a signal.
  bool wait_for_quit(double seconds) const {
    pollfd key{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (poll(&key, 1, static_cast<int>(seconds * 1000)) <= 0) return stop_requested_ != 0;
    char pressed = 0;
    return read(STDIN_FILENO, &pressed, 1) <= 0 || pressed == 'q' || pressed == 27 || stop_requested_ != 0;
  }
  static inline volatile std::sig_atomic_t stop_requested_ = 0;

 private:
  /// Writes text without escaping: text that comes from files was made printable before.
  static void put(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  termios before_{};
};

std::string page(const WatchArguments& arguments, std::span<const system::GpuReading> readings,
                 const std::vector<std::string>& messages, size_t columns) {
  std::string text;
  for (const system::GpuReading& reading : readings) text += gpu_text(reading);
  if (readings.empty()) text += "no GPU with readable sensors\n";
  for (const std::string& line : messages) text += shortened(line, columns) + "\n";
  text += '\n';
  const std::vector<fs::path> runs = runs_to_show(arguments);
  for (const fs::path& run : runs) text += run_text(run, columns) + "\n";
  if (runs.empty()) text += "no run below runs/ in the last hour; name one: hearth watch FOLDER\n";
  return printable(text);
}

Json json_of(const system::GpuReading& reading) {
  Json json = {{"address", reading.name()}};
  for (const auto& [name, value] : run::kGpuQuantities)
    if (std::isfinite(reading.*value)) json[name] = reading.*value;
  if (reading.memory_used_bytes >= 0) json["memory_used_bytes"] = reading.memory_used_bytes;
  if (reading.memory_bytes >= 0) json["memory_bytes"] = reading.memory_bytes;
  return json;
}

void print_status(const WatchArguments& arguments, std::span<const system::GpuReading> readings) {
  Json gpus = Json::array(), runs = Json::array();
  for (const system::GpuReading& reading : readings) gpus.push_back(json_of(reading));
  for (const fs::path& run : runs_to_show(arguments)) runs.push_back(run_status(run));
  print_json({{"gpus", gpus}, {"runs", runs}});
}

void run_watch(const WatchArguments& arguments) {
  for (const std::string& run : arguments.runs)
    if (!path_exists(run)) user_error("there is no run folder '{}'", run);
  if (!(arguments.seconds >= 0.1 && arguments.seconds <= 3600))
    user_error("expected 0.1 to 3600 for --seconds, got {}", arguments.seconds);
  std::vector<std::string> addresses;
  {
    system::Tree tree(arguments.root);
    for (const system::PciGpu& gpu : system::list_pci_gpus(tree)) addresses.push_back(gpu.pci_address);
  }
  std::vector<std::string> messages;
  system::Sampler sampler({.root = arguments.root},
                          [&](const std::string& text) { messages.push_back(text); });
  sampler.watch(addresses);
  const auto wait_for_readings = [&] {
    for (int tries = 0; tries < 100 && !addresses.empty() && sampler.readings().empty(); ++tries) {
      sampler.look();
      usleep(20'000);
    }
  };
  wait_for_readings();
  if (arguments.json) return print_status(arguments, sampler.readings());
  constexpr size_t kColumns = 100;
  if (arguments.once || isatty(STDOUT_FILENO) == 0 || isatty(STDIN_FILENO) == 0) {
    say("{}", page(arguments, sampler.readings(), messages, kColumns));
    return;
  }
  std::signal(SIGINT, [](int) { Screen::stop_requested_ = 1; });
  std::signal(SIGTERM, [](int) { Screen::stop_requested_ = 1; });
  const Screen screen;
  do {
    sampler.look();
    const size_t columns = std::max<size_t>(40, Screen::size().ws_col);
    screen.show(page(arguments, sampler.readings(), messages, columns) + "q: quit\n");
  } while (!screen.wait_for_quit(arguments.seconds));
}

}  // namespace

void add_watch(CLI::App& app) {
  const auto arguments = std::make_shared<WatchArguments>();
  CLI::App* verb = app.add_subcommand("watch", "Show GPUs and runs live in the terminal");
  verb->add_option("runs", arguments->runs,
                   "Run folders (default: runs in runs/ that were active in the last hour)");
  verb->add_option("--seconds", arguments->seconds, "Seconds between two updates (default 1)");
  verb->add_flag("--once", arguments->once, "Print once and exit");
  verb->add_option("--root", arguments->root, "Read copies of another machine's sensor files in this folder");
  add_json(*verb, arguments->json);
  set_example(*verb, "hearth watch --once");
  verb->callback([=] { run_watch(*arguments); });
}

}  // namespace hearth::cli
