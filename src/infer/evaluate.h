#pragma once

#include <string>

#include "base/function_ref.h"
#include "hub/model_folder.h"
#include "tasks/task.h"

namespace hearth::infer {

/// Evaluates weights on the held-out data of a task. Compiles only evaluation programs, then calls `load`,
/// which reads the weights into the engine. `num_shown`: max samples that are stored for a report.
tasks::Evaluation evaluate(engine::EngineOptions options, const tasks::Task& task, int64_t num_shown,
                           FunctionRef<void(engine::Engine&)> load);

/// Evaluates a language model. `context`: max tokens per row. If the evaluation is predicted to take long,
/// first calls `say` with a sentence about it (planner::long_wait).
tasks::Evaluation evaluate_text(engine::EngineOptions options, const tasks::Task& task,
                                const hub::ModelFolder& model, int64_t context,
                                FunctionRef<void(const std::string&)> print_note);

}  // namespace hearth::infer
