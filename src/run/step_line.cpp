#include "run/step_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace hearth::run {

size_t write_step_line(char* text, size_t size, const Progress& p) {
  char mfu[32] = "N/A";
  if (p.mfu > 0) *fmt::format_to_n(mfu, sizeof(mfu) - 1, "{:.2f}%", 100 * p.mfu).out = 0;
  const double share =
      static_cast<double>(p.memory_bytes) / static_cast<double>(std::max<int64_t>(1, p.device_bytes));
  return fmt::format_to_n(text, size,
                          "step: {:2}  loss: {:8.5f}  grad_norm: {:7.4f}  memory: {:5.2f}GiB({:.2f}%)  "
                          "{}ps: {:.1f}  tflops: {:.3f}  mfu: {}  lr: {:.3e}  eta: {:.0f}s{}{}\n",
                          p.step, p.loss, p.grad_norm, static_cast<double>(p.memory_bytes) / (1 << 30),
                          100 * share, std::string_view(p.unit).substr(0, 1), p.samples_per_second, p.tflops,
                          mfu, p.learning_rate, p.eta_seconds, p.gpus.empty() ? "" : "  gpu: ", p.gpus)
      .size;
}

}  // namespace hearth::run
