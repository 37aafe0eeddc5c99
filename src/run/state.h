#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "data/loader.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// How the losses of updates spread, the latest hundred counting most: exponentially weighted mean and
/// variance (Finch 2009, "Incremental calculation of weighted mean and variance").
struct LossSpread {
  double mean = 0;
  double variance = 0;
  int64_t count = 0;

  void add(double loss);
  /// Standard deviations that a loss lies above the mean; 0 while too few are known.
  double z_score(double loss) const;
};

/// Fingerprint of the files of one input of a run, at the time when the run read them.
struct InputState {
  std::string key;
  int64_t num_files = 0, num_bytes = 0;
  uint64_t digest = 0;  ///< of names, sizes, and contents or samples of them (run/inputs.h)
  bool operator==(const InputState&) const = default;
};

/// What a run is at between two updates: with weights and optimizer state, all that a checkpoint holds.
struct RunState {
  static constexpr double kNoScore = std::numeric_limits<double>::lowest();
  int64_t step = 0;  ///< updates that are done
  double best_score = kNoScore;
  int64_t evaluations_without_gain = 0;
  data::LoaderPosition position;
  int num_workers = 1;    ///< that it was left by, where each of them has states of its own; else 1
  std::string optimizer;  ///< by its name in a recipe; empty: a checkpoint that does not say
  int64_t num_rows = 0;   ///< of data in an epoch; 0: a checkpoint that does not say
  LossSpread losses;
  int64_t num_bad = 0;             ///< skipped updates (recipe::BadSteps)
  int64_t num_bad_in_row = 0;      ///< consecutive skipped updates up to now
  std::vector<InputState> inputs;  ///< empty: a checkpoint that does not say
};

/// JSON, made without allocating.
using StateText = fmt::basic_memory_buffer<char, 2048>;
StateText write_run_state(const RunState& state);
/// UserError naming `where` for a text that holds no such state.
RunState parse_run_state(std::string_view json, std::string_view where);

/// Returns text that differs between runs of different recipes. Class names are not part of it, because they
/// are unknown before the data is open.
std::string identity_of(recipe::Recipe recipe);

}  // namespace hearth::run
