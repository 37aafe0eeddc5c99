#pragma once

#include <string>

#include "base/function_ref.h"
#include "hub/model_folder.h"
#include "tasks/task.h"

namespace hearth::infer {

/// Evaluates weights on the data that a task holds out. Compiles evaluation programs alone; `load` then
/// reads the weights into the engine.
tasks::Evaluation evaluate(engine::EngineOptions options, const tasks::Task& task,
                           FunctionRef<void(engine::Engine&)> load);

/// Evaluates a language model. `context`: max tokens of a row. `say` gets planner::long_wait's sentence, if
/// any, before the evaluation begins.
tasks::Evaluation evaluate_text(engine::EngineOptions options, const tasks::Task& task,
                                const hub::ModelFolder& model, int64_t context,
                                FunctionRef<void(const std::string&)> say);

}  // namespace hearth::infer
