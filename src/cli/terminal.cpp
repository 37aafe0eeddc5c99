#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/run_files.h"
#include "base/text.h"
#include "run/step_line.h"

namespace hearth::cli {

Terminal::Terminal(distributed::Heartbeat heartbeat, std::FILE* out)
    : heartbeat_(heartbeat),
      out_(out),
      live_(isatty(fileno(out)) != 0),
      color_(live_ && std::getenv("NO_COLOR") == nullptr) {}

Terminal::~Terminal() { clear(); }

void Terminal::put(std::string_view text) {
  if (!is_writable_) return;
  const distributed::Phase phase = heartbeat_.switch_phase(distributed::Phase::reporting);
  const size_t num_taken = std::fwrite(text.data(), 1, text.size(), out_);
  is_writable_ = std::fflush(out_) == 0 && num_taken == text.size();
  if (!is_writable_) {
    std::fprintf(stderr,
                 "hearth: cannot write to standard %s (%s); the run continues, see %s in its folder\n",
                 out_ == stdout ? "output" : "error", std::strerror(errno), kLogFile);
  }
  heartbeat_.switch_phase(phase);
}

void Terminal::clear() {
  if (live_) put("\r\033[K");
}

void Terminal::progress(const run::Progress& p) {
  char text[320];
  const auto end = live_ ? write_live(text, sizeof(text), p) : run::write_step_line(text, sizeof(text), p);
  put({text, std::min(end, sizeof(text))});
}

void Terminal::message(const std::string& text) {
  clear();
  put(printable(text) + "\n");
}

void Terminal::warn(const std::string& text) {
  clear();
  std::fprintf(stderr, "hearth: %s\n", printable(text).c_str());
}

size_t Terminal::write_live(char* text, size_t size, const run::Progress& p) const {
  const auto eta = static_cast<int64_t>(p.eta_seconds);
  return fmt::format_to_n(text, size,
                          "\r\033[K{}{:>5.1f}%{} {}/{}  loss {:.4f}  lr {:.2e}  grad {:.3f}  {:.0f} {}/s  "
                          "{:.2f} GiB  {}{}ETA {}:{:02}",
                          color_ ? "\033[36m" : "",
                          100.0 * static_cast<double>(p.step) / static_cast<double>(p.total_steps),
                          color_ ? "\033[0m" : "", p.step, p.total_steps, p.loss, p.learning_rate,
                          p.grad_norm, p.samples_per_second, p.unit,
                          static_cast<double>(p.memory_bytes) / (1 << 30), p.gpus, p.gpus.empty() ? "" : "  ",
                          eta / 60, eta % 60)
      .size;
}

std::unique_ptr<run::Reporter> open_terminal(distributed::Heartbeat heartbeat) {
  return std::make_unique<Terminal>(heartbeat);
}

std::unique_ptr<run::Reporter> open_error_terminal(distributed::Heartbeat heartbeat) {
  return std::make_unique<Terminal>(heartbeat, stderr);
}

int print_error(const run::ExitStatus& ending) {
  constexpr size_t kMaxCharacters = 500;
  const std::string error_message =
      ending.has_lines ? printable(ending.error_message) : shortened(ending.error_message, kMaxCharacters);
  if (!error_message.empty()) std::fprintf(stderr, "hearth: %s\n", error_message.c_str());
  return ending.status;
}

}  // namespace hearth::cli
