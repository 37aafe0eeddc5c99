#pragma once

#include "distributed/process_group.h"
#include "engine/engine.h"
#include "recipe/recipe.h"
#include "run/trainer_events.h"
#include "tasks/task.h"

namespace hearth::run {

/// A worker process of a run, which may be the only one. The trainer owns the referenced objects.
struct Worker {
  const recipe::Recipe& recipe;
  const tasks::Task& task;
  engine::Engine& engine;
  const TrainerEvents& events;
  distributed::ProcessGroup* group = nullptr;  ///< null: the run has one worker

  int num_workers() const { return group == nullptr ? 1 : group->size(); }
  /// True for the leader (rank 0), which alone writes to the run folder.
  bool leads() const { return group == nullptr || group->rank() == 0; }
  void barrier() const {
    if (group != nullptr) group->barrier();
  }
};

}  // namespace hearth::run
