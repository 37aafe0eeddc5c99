#include "cli/hub.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "base/text.h"
#include "cli/output.h"

namespace hearth::cli {
namespace {

/// Formats a duration: "45 s", "12 min", "1 h 05 min".
std::string duration_text(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", std::ceil(seconds));
  const auto minutes = static_cast<int64_t>(std::ceil(seconds / 60));
  if (minutes < 60) return fmt::format("{} min", minutes);
  return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
}

/// Prints the progress of a download: on a terminal one line that is updated in place, otherwise a line every
/// ten seconds.
class ProgressLine {
 public:
  void print(const net::HubProgress& progress) {
    const bool is_live = isatty(STDERR_FILENO) == 1;
    const auto now = std::chrono::steady_clock::now();
    const bool is_due = progress.is_last || now - printed_ >= std::chrono::seconds(is_live ? 0 : 10);
    if (!is_due) return;
    const bool is_first = printed_ == std::chrono::steady_clock::time_point();
    printed_ = now;
    if (is_first && !is_live && !progress.is_last) return;
    std::string line =
        fmt::format("{} of {}, {}/s", human_bytes(progress.done_bytes), human_bytes(progress.total_bytes),
                    human_bytes(static_cast<int64_t>(progress.bytes_per_second)));
    if (progress.seconds_left > 0 && !progress.is_last)
      line += fmt::format(", {} left", duration_text(progress.seconds_left));
    if (progress.num_files > 1)
      line += fmt::format(", {} of {} files", progress.num_done, progress.num_files);
    if (is_live) std::fputs("\r\x1b[K", stderr);
    say(stderr, "{}{}", line, is_live && !progress.is_last ? "" : "\n");
  }

 private:
  std::chrono::steady_clock::time_point printed_ = {};
};

net::HubReporter printing_reporter() {
  return {.note = [](const std::string& text) { say(stderr, "{}\n", text); },
          .progress =
              [line = ProgressLine()](const net::HubProgress& progress) mutable { line.print(progress); }};
}

}  // namespace

std::string download(const std::string& name) {
  return net::download_from_hub(net::parse_hub_name(name), net::hub_settings(), printing_reporter()).string();
}

std::string upload(const net::HubName& name, const std::vector<hub::UploadFile>& files,
                   const hub::UploadOptions& options) {
  return hub::upload_to_hub(name, files, options, net::hub_settings(), printing_reporter());
}

bool takes_text(const CLI::Option& option) {
  static const std::set<std::string> names = {"prompt", "system", "text", "stop", "user"};
  return !option.get_lnames().empty() && names.contains(option.get_lnames().front());
}

void download_named(CLI::App& verb) {
  for (CLI::Option* option : verb.get_options()) {
    std::vector<std::string> values = option->results();
    if (takes_text(*option) || std::ranges::none_of(values, net::is_hub_name)) continue;
    option->clear();
    for (const std::string& value : values)
      option->add_result(net::is_hub_name(value) ? download(value) : value);
    option->run_callback();
  }
  for (CLI::App* subcommand : verb.get_subcommands()) download_named(*subcommand);
}

void download_named(recipe::Recipe& recipe) {
  std::string data = recipe.data.path.string();
  for (std::string* value :
       {&recipe.model.path, &recipe.model.config, &recipe.model.autoencoder, &recipe.model.tokenizer,
        &recipe.adapter.path, &recipe.init, &data, &recipe.data.val_path, &recipe.data.classes,
        &recipe.data.template_, &recipe.distill.from, &recipe.diffuse.prior}) {
    if (net::is_hub_name(*value)) *value = download(*value);
  }
  recipe.data.path = data;
}

}  // namespace hearth::cli
