#include "io/run_outputs.h"
#include "planner/plan_report.h"
#include "run/run_sink.h"

namespace hearth::run {

std::unique_ptr<RunSink> open_plan_file(const SinkContext& context) {
  write_file_atomically(context.folder / io::kPlanFile,
                        planner::to_json(planner::make_plan_report(context.plan)));
  return std::make_unique<RunSink>();
}

}  // namespace hearth::run
