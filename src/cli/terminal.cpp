#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace hearth::cli {

Terminal::Terminal()
    : live_(isatty(STDOUT_FILENO) != 0), color_(live_ && std::getenv("NO_COLOR") == nullptr) {}

Terminal::~Terminal() { clear(); }

void Terminal::clear() const {
  if (!live_) return;
  std::fputs("\r\033[K", stdout);
  std::fflush(stdout);
}

void Terminal::progress(const train::Progress& p) const {
  char text[320];
  const auto end = live_ ? write_live(text, sizeof(text), p) : write_plain(text, sizeof(text), p);
  std::fwrite(text, 1, std::min(end, sizeof(text)), stdout);
  std::fflush(stdout);
}

void Terminal::message(const std::string& text) const {
  clear();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void Terminal::warn(const std::string& text) const {
  clear();
  std::fprintf(stderr, "hearth: %s\n", text.c_str());
}

size_t Terminal::write_live(char* text, size_t size, const train::Progress& p) const {
  const auto eta = static_cast<int64_t>(p.eta_seconds);
  return fmt::format_to_n(text, size,
                          "\r\033[K{}{:>5.1f}%{} {}/{}  loss {:.4f}  lr {:.2e}  grad {:.3f}  {:.0f} {}/s  "
                          "{:.2f} GiB  ETA {}:{:02}",
                          color_ ? "\033[36m" : "",
                          100.0 * static_cast<double>(p.step) / static_cast<double>(p.total_steps),
                          color_ ? "\033[0m" : "", p.step, p.total_steps, p.loss, p.learning_rate,
                          p.grad_norm, p.samples_per_second, p.unit,
                          static_cast<double>(p.memory_bytes) / (1 << 30), eta / 60, eta % 60)
      .size;
}

size_t Terminal::write_plain(char* text, size_t size, const train::Progress& p) {
  const double memory = static_cast<double>(p.memory_bytes) / (1 << 30);
  const double total =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 30);
  return fmt::format_to_n(text, size,
                          "step: {:2}  loss: {:8.5f}  grad_norm: {:7.4f}  memory: {:5.2f}GiB({:.2f}%)  "
                          "{}ps: {:.1f}  tflops: {:.3f}  mfu: N/A  lr: {:.3e}  eta: {:.0f}s\n",
                          p.step, p.loss, p.grad_norm, memory, 100 * memory / total,
                          std::string_view(p.unit).substr(0, 1), p.samples_per_second, p.tflops,
                          p.learning_rate, p.eta_seconds)
      .size;
}

}  // namespace hearth::cli
