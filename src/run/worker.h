#pragma once

#include "distributed/process_group.h"
#include "engine/engine.h"
#include "recipe/recipe.h"
#include "run/trainer_events.h"
#include "tasks/task.h"

namespace hearth::run {

/// One of the workers that share a run, or the only one. The trainer owns what it refers to.
struct Worker {
  const recipe::Recipe& recipe;
  const tasks::Task& task;
  engine::Engine& engine;
  const TrainerEvents& events;
  distributed::ProcessGroup* group = nullptr;  ///< null: the only worker

  int num_workers() const { return group == nullptr ? 1 : group->size(); }
  /// True for the worker that writes the run folder.
  bool leads() const { return group == nullptr || group->rank() == 0; }
  void barrier() const {
    if (group != nullptr) group->barrier();
  }
};

}  // namespace hearth::run
