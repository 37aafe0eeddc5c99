#include <fmt/format.h>

#include "run/run_sink.h"

namespace hearth::run {
namespace {

class TerminalSink : public RunSink {
 public:
  explicit TerminalSink(const TrainerEvents& events) : events_(events) {}

  void step(const StepReport& report) override {
    if (report.progress != nullptr) events_.progress(*report.progress);
  }
  void evaluation(const EvaluationReport& report) override {
    events_.message(
        fmt::format("step {}: validation loss {:.4f}, {}", report.step, report.loss, report.text));
  }
  void event(const EventReport& report) override {
    if (!report.is_printed) events_.message(std::string(report.text));
  }
  void sparsity(const SparsityReport& report) override {
    events_.message(fmt::format("step {}: {:.1f}% of the weights in {} layers are pruned", report.step,
                                100 * report.total(), report.layers.size()));
  }

 private:
  const TrainerEvents& events_;
};

}  // namespace

std::unique_ptr<RunSink> open_terminal(const SinkContext& context) {
  return std::make_unique<TerminalSink>(context.events);
}

}  // namespace hearth::run
