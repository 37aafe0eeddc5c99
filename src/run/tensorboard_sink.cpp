#include <fmt/format.h>

#include "io/event_file.h"
#include "run/report_metrics.h"
#include "run/run_sink.h"

namespace hearth::run {
namespace {

class TensorBoardSink : public RunSink {
 public:
  /// `first_step`: first step of this session; see io::EventFile.
  TensorBoardSink(const fs::path& folder, int64_t first_step) : file_(folder, first_step) {}

  void step(const StepReport& report) override {
    if (report.progress != nullptr) add_metrics(report);
  }
  void evaluation(const EvaluationReport& report) override {
    add_metrics(report);
    for (const ImageReport& image : report.images)
      file_.add_image(report.step, fmt::format("samples/{}", image.name), image.size, image.png);
  }
  void sparsity(const SparsityReport& report) override { add(report.step, "train/sparsity", report.total()); }

 private:
  void add(int64_t step, std::string_view tag, double value) {
    file_.add_scalar(step, tag, static_cast<float>(value));
  }
  template <typename Report>
  void add_metrics(const Report& report) {
    for_each_metric(report, [&](std::string_view name, double value) { add(report.step, name, value); });
  }

  io::EventFile file_;
};

}  // namespace

std::unique_ptr<RunSink> open_tensorboard(const SinkContext& context) {
  return std::make_unique<TensorBoardSink>(context.folder, context.last_step + 1);
}

}  // namespace hearth::run
