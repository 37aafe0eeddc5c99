#pragma once

#include <memory>

#include "bench/models.h"
#include "bench/workload.h"
#include "engine/engine.h"

namespace hearth::bench {

/// The learning rate of all cases: low enough that no loss overflows.
inline constexpr double kBenchRate = 1e-4;

/// What a case of training compiles; UserError for one of answers or of a kernel.
engine::EngineOptions engine_options(const BenchCase& bench, const BenchMachine& machine);

/// The same for that many workers, a micro-batch of each update for each.
void share_out(engine::EngineOptions& options, int num_workers);

std::unique_ptr<Workload> open_workload(const BenchCase& bench, const BenchMachine& machine);

}  // namespace hearth::bench
