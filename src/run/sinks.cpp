#include <optional>
#include <vector>

#include "run/run_sink.h"

namespace hearth::run {

using OpenSink = std::unique_ptr<RunSink>(const SinkContext& context);
OpenSink open_image_files, open_json_log, open_tensorboard, open_csv, open_terminal, open_html_report,
    open_plan_file;

namespace {

/// A sink and the entry of log.to that opens it.
struct SinkRow {
  OpenSink* open;
  std::optional<recipe::Logger> logger = {};  ///< nullopt: every run has the sink
};
/// All sinks. Reports are sent to the sinks in this order. Images are first, so that a reader of the JSON log
/// finds the images of its last evaluation. The JSON log contains every step that the sinks after it contain.
constexpr SinkRow kSinks[] = {
    {open_image_files},                               // samples/*.png
    {open_json_log},                                  // trainer_log.jsonl
    {open_tensorboard, recipe::Logger::tensorboard},  // events.out.tfevents.*
    {open_csv, recipe::Logger::csv},                  // metrics.csv
    {open_terminal},                                  // progress and messages, through TrainerEvents
    {open_html_report},                               // report.html, drawn from the log
    {open_plan_file},                                 // plan.json, when the run starts
};

class AllSinks : public RunSink {
 public:
  explicit AllSinks(const SinkContext& context) {
    for (const auto& [open, logger] : kSinks)
      if (!logger || context.recipe.log.has(*logger)) sinks_.push_back(open(context));
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
  void sparsity(const SparsityReport& report) override {
    for (const auto& sink : sinks_) sink->sparsity(report);
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

double SparsityReport::total() const {
  double pruned = 0, all = 0;
  for (const engine::LayerSparsity& layer : layers) {
    pruned += static_cast<double>(layer.num_pruned);
    all += static_cast<double>(layer.num_weights);
  }
  return pruned / all;
}

std::unique_ptr<RunSink> open_sinks(const SinkContext& context) {
  return std::make_unique<AllSinks>(context);
}

}  // namespace hearth::run
