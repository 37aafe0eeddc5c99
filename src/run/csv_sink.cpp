#include "io/metrics_table.h"
#include "run/report_metrics.h"
#include "run/run_sink.h"

namespace hearth::run {
namespace {

class CsvSink : public RunSink {
 public:
  CsvSink(const fs::path& path, int64_t last_step) : table_(path, last_step) {}

  void step(const StepReport& report) override {
    if (report.progress != nullptr) add(report);
  }
  void evaluation(const EvaluationReport& report) override { add(report); }
  void sparsity(const SparsityReport& report) override {
    const io::Metric metric = {"train/sparsity", report.total()};
    table_.add(report.step, std::span(&metric, 1));
  }
  void sync() override { table_.sync(); }

 private:
  template <typename Report>
  void add(const Report& report) {
    std::vector<io::Metric> metrics;
    for_each_metric(report, [&](std::string_view name, double value) { metrics.emplace_back(name, value); });
    table_.add(report.step, metrics);
  }

  io::MetricsTable table_;
};

}  // namespace

std::unique_ptr<RunSink> open_csv(const SinkContext& context) {
  return std::make_unique<CsvSink>(context.folder / io::kMetricsTable, context.last_step);
}

}  // namespace hearth::run
