#include <vector>

#include "run/run_sink.h"

namespace hearth::run {

using OpenSink = std::unique_ptr<RunSink>(const SinkContext& context);
OpenSink open_json_log, open_image_files, open_tensorboard, open_terminal, open_html_report;

namespace {

/// Functions that open the sinks. Reports are sent to the sinks in this order. The JSON log is first, so that
/// it contains every step that another output contains.
constexpr OpenSink* kSinks[] = {
    open_json_log,     // trainer_log.jsonl
    open_image_files,  // samples/*.png
    open_tensorboard,  // events.out.tfevents.*
    open_terminal,     // progress and messages, through TrainerEvents
    open_html_report,  // report.html, drawn from the log
};

class AllSinks : public RunSink {
 public:
  explicit AllSinks(const SinkContext& context) {
    for (OpenSink* const open : kSinks) sinks_.push_back(open(context));
  }
  void step(const StepReport& report) override {
    for (const auto& sink : sinks_) sink->step(report);
  }
  void evaluation(const EvaluationReport& report) override {
    for (const auto& sink : sinks_) sink->evaluation(report);
  }
  void event(const EventReport& report) override {
    for (const auto& sink : sinks_) sink->event(report);
  }
  void sync() override {
    for (const auto& sink : sinks_) sink->sync();
  }
  void check() const override {
    for (const auto& sink : sinks_) sink->check();
  }
  void finish(const EndReport& report) override {
    for (const auto& sink : sinks_) sink->finish(report);
  }

 private:
  std::vector<std::unique_ptr<RunSink>> sinks_;
};

}  // namespace

std::unique_ptr<RunSink> open_sinks(const SinkContext& context) {
  return std::make_unique<AllSinks>(context);
}

}  // namespace hearth::run
