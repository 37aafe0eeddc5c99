#include "run/preview.h"

#include "base/file.h"
#include "io/report.h"
#include "tasks/task_def.h"

namespace hearth::run {

void write_preview(const tasks::Job& job, const fs::path& file) {
  constexpr int64_t kMaxRows = 24;  // A pair of answers is one row.
  const std::unique_ptr<tasks::Task> task = tasks::task_of(job.recipe).open(job, /*device=*/0);
  io::ReportData page{.title = "Training samples for " + recipe::model_name(job.recipe),
                      .subtitle = task->describe()};
  task->show_samples({.seed = job.recipe.seed}, kMaxRows, page);
  write_file_atomically(file, io::make_report(page));
}

}  // namespace hearth::run
