#pragma once

#include <memory>

#include "bench/models.h"
#include "bench/workload.h"
#include "engine/engine.h"

namespace hearth::bench {

/// Learning rate of all cases; low enough that the loss stays finite on random data.
inline constexpr double kBenchRate = 1e-4;

/// Returns the engine options of a training case. Throws a UserError for a generation or kernel case.
engine::EngineOptions engine_options(const BenchCase& bench, const BenchMachine& machine);

/// Changes the options to data-parallel training by `num_workers` workers with one micro-batch each.
void set_data_parallel(engine::EngineOptions& options, int num_workers);

/// Prepares the workload of a case. Throws a UserError if the machine cannot run it.
std::unique_ptr<Workload> open_workload(const BenchCase& bench, const BenchMachine& machine);

}  // namespace hearth::bench
