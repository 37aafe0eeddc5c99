#include <fmt/format.h>

#include "base/run_files.h"
#include "io/run_log.h"
#include "run/run_sink.h"

namespace hearth::run {
namespace {

class ImageFileSink : public RunSink {
 public:
  explicit ImageFileSink(const fs::path& run) : folder_(run / io::kSamplesFolder) {}

  void evaluation(const EvaluationReport& report) override {
    for (const ImageReport& image : report.images) {
      make_inner_folder(folder_);
      write_file_atomically(folder_ / fmt::format("step-{:06}-{}.png", report.step, image.name), image.png);
    }
  }

 private:
  fs::path folder_;
};

}  // namespace

std::unique_ptr<RunSink> open_image_files(const SinkContext& context) {
  return std::make_unique<ImageFileSink>(context.folder);
}

}  // namespace hearth::run
